// TTFT and ITL percentiles next to the objectives.
import { count, duration, make } from "../text.js";

const NAMES = { ttft: "first token (TTFT)", itl: "next tokens (ITL)" };

export class Latency {
  constructor(store) {
    this.store = store;
    this.body = document.querySelector("#latency tbody");
  }

  draw() {
    this.body.replaceChildren(
      ...Object.entries(this.store.frame.latency).map(([name, found]) => {
        const objective = found.objective_s;
        const cell = (value) => make("td", { class: objective && value > objective ? "over" : null }, duration(value));
        return make(
          "tr",
          {},
          make("th", { scope: "row" }, NAMES[name]),
          make("td", {}, count(found.count)),
          cell(found.p50_s),
          cell(found.p90_s),
          cell(found.p99_s),
          make("td", {}, objective ? duration(objective) : "none"),
          make("td", {}, found.within === undefined ? "–" : `${(100 * found.within).toFixed(1)}%`),
        );
      }),
    );
  }
}
