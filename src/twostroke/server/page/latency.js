// TTFT and ITL percentiles against objectives, and the figures at the top.
import { count, duration, make, rate } from "/page/text.js";

const NAMES = { ttft: "TTFT", itl: "ITL" };
const WINDOW_S = 5;

export class Latency {
  constructor(store) {
    this.store = store;
    this.body = document.querySelector("#latency tbody");
    this.tiles = document.getElementById("tiles");
  }

  draw() {
    const frame = this.store.frame;
    if (!frame) return;
    this.body.replaceChildren(...Object.entries(frame.latency).map(([name, found]) => {
      const objective = found.objective_s;
      const cell = (value) => make("td", { class: objective && value > objective ? "over" : null }, duration(value));
      return make("tr", {}, make("th", { scope: "row" }, `${NAMES[name]} (${count(found.count)})`),
        cell(found.p50_s), cell(found.p90_s), cell(found.p99_s),
        make("td", {}, objective ? duration(objective) : "none"),
        make("td", {}, found.within === undefined ? "–" : `${(100 * found.within).toFixed(1)}%`));
    }));
    const steps = this.store.latest(WINDOW_S);
    const sum = (name) => steps.reduce((total, step) => total + step[name], 0);
    const gauges = frame.gauges;
    const shown = {
      running: count(gauges.running ?? 0), waiting: count(gauges.waiting ?? 0),
      prefill: rate(sum("prefillTokens"), WINDOW_S), decode: rate(sum("decodeTokens"), WINDOW_S),
      "host share": steps.length ? `${((100 * sum("host")) / sum("seconds")).toFixed(1)}%` : "–",
      preemptions: count(gauges.preemptions_total ?? 0), "steps missed": count(this.store.skipped),
    };
    this.tiles.replaceChildren(...Object.entries(shown).map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", { "data-tile": name }, value))));
  }
}
