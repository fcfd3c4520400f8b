// Predicted step times next to measured ones.
import { dot, line, logAxis, surface, words } from "../canvas.js";

const WINDOW_S = 30,
  MOST = 2000;

const axis = (seconds) => (seconds < 0.9995 ? `${+(seconds * 1e3).toPrecision(1)} ms` : `${+seconds.toPrecision(1)} s`);

export class Predicted {
  constructor(store) {
    this.store = store;
    this.canvas = document.getElementById("predicted");
    this.text = document.getElementById("predicted-text");
  }

  draw() {
    const found = surface(this.canvas);
    const steps = this.store
      .recent(WINDOW_S)
      .filter((step) => step.predicted > 0 && step.seconds > 0)
      .slice(-MOST);
    if (!found || !steps.length) return;
    const { context, width, height } = found;
    const values = steps.flatMap((step) => [step.predicted, step.seconds]);
    const low = 10 ** Math.floor(Math.log10(Math.min(...values))),
      high = 10 ** Math.ceil(Math.log10(Math.max(...values)));
    const x = logAxis(low, high, 52, width - 22),
      y = logAxis(low, high, height - 34, 22);
    for (const at of x.decades) {
      line(
        context,
        [
          [x(at), 22],
          [x(at), height - 34],
        ],
        "line",
      );
      line(
        context,
        [
          [52, y(at)],
          [width - 10, y(at)],
        ],
        "line",
      );
      words(context, axis(at), x(at), height - 20, "center");
      words(context, axis(at), 48, y(at) + 4, "right");
    }
    words(context, "measured", 6, 12);
    words(context, "predicted", (52 + width) / 2, height - 4, "center");
    line(
      context,
      [
        [x(low), y(low)],
        [x(high), y(high)],
      ],
      "ink",
      1,
      [4, 4],
    );
    for (const step of steps.slice(-400))
      dot(context, x(step.predicted), y(step.seconds), 2.5, step.hasPrefill ? "prefill" : "decode", 0.6);
    const told = [
      ["decode", false],
      ["with prefill", true],
    ].map(([name, kind]) => {
      const ratios = steps
        .filter((step) => step.hasPrefill === kind)
        .map((step) => step.predicted / step.seconds)
        .sort((a, b) => a - b);
      const median = ratios[ratios.length >> 1]?.toFixed(2);
      return median ? `${name}: predicted is ${median} of measured (median of ${ratios.length} steps)` : "";
    });
    this.text.textContent = told.filter(Boolean).join("\n");
  }
}
