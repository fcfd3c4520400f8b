// The timeline of steps: a bar for each step, stacked by the parts of its time.
import { colour, line, surface, words } from "../canvas.js";
import { announce } from "../announce.js";
import { duration } from "../text.js";

const PARTS = ["host", "sampling", "decode", "prefill"];
const BAR = 5,
  LEFT = 56,
  TOP = 8,
  BOTTOM = 20;
const HINT = "Point at a bar, or press an arrow key, to read one step.";

/** The next round figure, so that the axis stays the same while times change a little. */
function rounded(seconds) {
  const power = 10 ** Math.floor(Math.log10(seconds));
  return [1, 1.5, 2, 3, 4, 6, 8, 10].map((each) => each * power).find((each) => each >= seconds * 0.999);
}

export class Timeline {
  constructor(store) {
    this.store = store;
    this.canvas = document.getElementById("steps");
    this.text = document.getElementById("steps-text");
    this.chosen = null;  // the step's number that the keyboard chose; null means the latest step
    this.hovered = null;  // the step under the pointer, which takes precedence
    this.shown = [];
    this.frozen = false;  // while it is set, new steps wait
    this.canvas.addEventListener("pointermove", (event) => this.hover(this.at(event)));
    this.canvas.addEventListener("pointerleave", () => this.hover(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  at(event) {
    const place = Math.floor((event.offsetX - LEFT) / BAR);
    return this.shown[place]?.step ?? null;
  }

  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return this.choose(null);
    if (!(event.key in moves) || !this.shown.length) return;
    event.preventDefault();
    const place = this.shown.findIndex((step) => step.step === this.chosen);
    const from = place < 0 ? this.shown.length - 1 : place;
    const to = Math.min(this.shown.length - 1, Math.max(0, from + moves[event.key]));
    this.choose(this.shown[to].step);
  }

  choose(step) {
    this.chosen = step;
    this.hover(null);
    if (step !== null) announce(this.text.textContent);
  }

  hover(step) {
    this.hovered = step;
    this.draw();
  }

  draw() {
    const found = surface(this.canvas);
    if (!found) return;
    const { context, width, height } = found;
    if (!this.frozen) this.shown = this.store.steps.slice(-Math.floor((width - LEFT) / BAR));
    const longest = rounded(Math.max(0.001, ...this.shown.map((step) => step.seconds)));
    const high = height - TOP - BOTTOM;
    for (const share of [0, 0.5, 1]) {
      const y = height - BOTTOM - share * high;
      line(
        context,
        [
          [LEFT, y],
          [width, y],
        ],
        "line",
      );
      words(context, `${+(1e3 * share * longest).toPrecision(2)} ms`, LEFT - 4, y + 4, "right");
    }
    this.shown.forEach((step, place) => {
      let y = height - BOTTOM;
      for (const part of PARTS) {
        const size = (step[part] / longest) * high;
        context.fillStyle = colour(part);
        context.fillRect(LEFT + place * BAR, y - size, BAR - 1, size);
        y -= size;
      }
      if (step.step === (this.hovered ?? this.chosen)) {
        context.strokeStyle = colour("ink");
        context.strokeRect(LEFT + place * BAR - 0.5, TOP - 4, BAR, height - TOP - BOTTOM + 6);
      }
    });
    if (this.shown.length) {
      words(context, "older", LEFT, height - 5);
      words(context, "newest step", LEFT + Math.max(140, this.shown.length * BAR), height - 5, "right");
    }
    this.tell();
  }

  tell() {
    const wanted = this.hovered ?? this.chosen;
    const step = wanted === null ? null : this.shown.find((each) => each.step === wanted);
    if (!step) {
      if (this.text.textContent !== HINT) this.text.textContent = HINT;
      return;
    }
    const rows = [];
    if (step.prefillTokens) rows.push(`${step.prefillTokens} prompt positions`);
    if (step.decodeTokens) rows.push(`${step.decodeTokens} decoded tokens`);
    const told = step.predicted === null ? "" : `, predicted ${duration(step.predicted)}`;
    this.text.textContent =
      `Step ${step.step}: ${duration(step.seconds)}${told}; prefill ${duration(step.prefill)}, decode ${duration(step.decode)}, ` +
      `sampling ${duration(step.sampling)}, host gap ${duration(step.host)}; ${rows.join(" and ") || "nothing"}, ` +
      `${step.waiting} waiting`;
  }
}
