// The roofline with this machine's limits, a dot for steps with prefill and one for steps that only decode.
import { dot, line, logAxis, surface, words } from "../canvas.js";
import { scaled } from "../text.js";

const WINDOW_S = 10,
  LEFT = 48,
  BOTTOM = 34;

/** 1e11 -> "100 G". */
function power(value) {
  const [factor, sign] = [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
    [1, ""],
  ].find(([each]) => value >= each * 0.999) ?? [1, ""];
  return `${Math.round(value / factor)} ${sign}`;
}

export class Roofline {
  constructor(store, limits) {
    this.store = store;
    this.limits = limits;
    this.canvas = document.getElementById("roofline");
    this.text = document.getElementById("roofline-text");
  }

  draw() {
    const found = surface(this.canvas);
    if (!found) return;
    const { context, width, height } = found;
    const { read_bytes_per_s: slope, flops_per_s: peak } = this.limits;
    const ridge = peak / slope;
    const x = logAxis(0.1, Math.max(1e4, ridge * 10), LEFT, width - 14);
    const y = logAxis(peak / 1e6, peak * 2, height - BOTTOM, 22);
    for (const at of x.decades) {
      line(
        context,
        [
          [x(at), 22],
          [x(at), height - BOTTOM],
        ],
        "line",
      );
      words(context, at >= 1000 ? `${at / 1000}k` : String(at), x(at), height - BOTTOM + 14, "center");
    }
    for (const at of y.decades) {
      line(
        context,
        [
          [LEFT, y(at)],
          [width - 8, y(at)],
        ],
        "line",
      );
      words(context, power(at), LEFT - 4, y(at) + 4, "right");
    }
    words(context, `${this.limits.unit} a second`, 6, 12);
    words(context, "operations for each byte that is read from memory", (LEFT + width) / 2, height - 4, "center");
    const left = 0.1,
      right = Math.max(1e4, ridge * 10);
    line(
      context,
      [
        [x(left), y(slope * left)],
        [x(ridge), y(peak)],
        [x(right), y(peak)],
      ],
      "ink",
      2,
    );
    const recent = this.store.recent(WINDOW_S).filter((step) => step.flops && step.busy > 0);
    const told = [];
    for (const kind of ["decode", "prefill"]) {
      const steps = recent.filter((step) => step.hasPrefill === (kind === "prefill"));
      for (const step of steps.slice(-60))
        dot(context, x(step.flops / step.bytes), y(step.flops / step.busy), 2, kind, 0.35);
      const sum = (name) => steps.reduce((total, step) => total + step[name], 0);
      if (!steps.length) continue;
      const [flops, bytes, busy] = [sum("flops"), sum("bytes"), sum("busy")];
      dot(context, x(flops / bytes), y(flops / busy), 6, kind);
      const bound = flops / bytes < ridge ? "memory" : "arithmetic";
      const share = flops / busy / Math.min(peak, (slope * flops) / bytes);
      const rates = `${scaled(flops / busy, "op/s")}, ${scaled(bytes / busy, "B/s")}, ${Math.round(100 * share)}% of the roof`;
      told.push(`${kind}: ${(flops / bytes).toPrecision(3)} operations a byte (bound by ${bound}), ${rates}`);
    }
    const roof =
      `Roof: ${scaled(slope, "B/s")} and ${scaled(peak, "")} ${this.limits.unit} a second, ` +
      `${this.limits.measured ? "measured: " : ""}${this.limits.source}.`;
    this.text.textContent = [...told, roof].join("\n").replaceAll("`", "");
  }
}
