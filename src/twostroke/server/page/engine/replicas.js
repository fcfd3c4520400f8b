// The replicas of a front, and what each does now. A server without replicas hides this panel.
import { count, duration, make, rate } from "../text.js";

const ROLES = { both: "whole answers", prefill: "prompts", decode: "answers" };
const BESIDE_STEPS = ["steps-figure", "panel-roofline", "panel-predicted"]; // a front computes no steps

export class Replicas {
  constructor(store, about) {
    this.store = store;
    this.shown = Boolean(about.settings.replicas);
    document.getElementById("replicas").hidden = !this.shown;
    this.body = document.querySelector("#replicas tbody");
    for (const id of BESIDE_STEPS) document.getElementById(id).hidden = this.shown;
  }

  draw() {
    if (!this.shown) return;
    this.body.replaceChildren(...this.store.frame.replicas.map((each) => this.row(each)));
  }

  row(each) {
    const ready = each.state === "ready";
    const memory = each.pages ? `${Math.round((100 * each.pages_used) / each.pages)}%` : "–";
    const figure = (text) => make("td", {}, ready || each.role ? text : "–");
    return make(
      "tr",
      { "data-replica": each.name || each.address },
      make("th", { scope: "row", title: each.address }, each.name || each.address),
      make("td", { class: ready ? null : "over", title: each.state }, each.state),
      make("td", {}, ROLES[each.role] ?? "–"),
      figure(count(each.running)),
      figure(count(each.waiting)),
      figure(rate(this.store.told(each), this.store.toldSeconds())),
      figure(each.step_s ? duration(each.step_s) : "–"),
      figure(memory),
    );
  }
}
