// One lane for each request: queued, prefill chunks, decode, preempted. A click on a lane's name explains it.
import { colour, surface } from "../canvas.js";
import { count, duration, make, shortName } from "../text.js";

const MOST = 24;
const PHASES = { queued: "waits", decoding: "decode", back: "preempted" };
const ENDS = { stop: "done", length: "cut", abort: "stopped" };

export class Lanes {
  constructor(store, explain) {
    this.store = store;
    this.explain = explain;
    this.list = document.getElementById("lanes");
    this.axis = document.getElementById("lanes-axis").children;
    this.window = document.getElementById("window");
    this.rows = new Map();
  }

  draw() {
    const seconds = Number(this.window.value);
    const now = this.store.now(),
      from = now - seconds;
    this.axis[0].textContent = `${seconds} s ago`;
    this.axis[1].textContent = `${seconds / 2} s ago`;
    const end = (each) => (each.ended ? each.ended.finished_s : now);
    const shown = [...this.store.requests.values()]
      .filter((each) => end(each) >= from)
      .sort((a, b) => (b.arrival ?? 0) - (a.arrival ?? 0))
      .slice(0, MOST);
    const wanted = new Set(shown.map((each) => each.id));
    for (const [id, row] of this.rows)
      if (!wanted.has(id)) {
        row.item.remove();
        this.rows.delete(id);
      }
    if (shown.length) this.list.querySelector(".figures")?.remove();
    shown.forEach((each, place) => {
      const row = this.row(each.id);
      if (this.list.children[place] !== row.item) this.list.insertBefore(row.item, this.list.children[place] ?? null);
      const words = `${told(each)} · ${shortName(each.id)}`;
      if (row.button.textContent !== words) {
        row.button.textContent = words;
        row.canvas.setAttribute("aria-label", `Times of ${words}`);
      }
      paint(row.canvas, each, from, now);
    });
  }

  row(id) {
    if (!this.rows.has(id)) {
      const button = make("button", { type: "button", title: `Explain ${id}`, onclick: () => this.explain(id) });
      const canvas = make("canvas", { role: "img" });
      this.rows.set(id, { button, canvas, item: make("li", { class: "lane", "data-request": id }, button, canvas) });
    }
    return this.rows.get(id);
  }
}

function told(each) {
  if (each.ended) {
    const guesses = each.ended.guesses;
    const guessed = guesses ? `, ${count(guesses.accepted)} of ${count(guesses.guessed)} guesses` : "";
    return `${count(each.ended.output_tokens)} tokens${guessed}, ${ENDS[each.ended.reason] ?? each.ended.reason}`;
  }
  if (each.phase === "filling") return `prefill, ${count(each.computed)} of ${count(each.prompt)}`;
  return PHASES[each.phase] ?? each.phase;
}

/** A front has no steps, so a lane shows prefill until the first token and decode after it. */
function whole({ first, token, ended }, now) {
  const end = ended?.finished_s ?? now;
  if (!first) return [];
  const prefill = { kind: "prefill", begin: first, end: token ?? end };
  return token ? [prefill, { kind: "decode", begin: token, end }] : [prefill];
}

function paint(canvas, each, from, now) {
  const found = surface(canvas);
  if (!found) return;
  const { context, width, height } = found;
  const x = (at) => ((Math.min(now, Math.max(from, at)) - from) / (now - from)) * width;
  const bar = (name, begin, end, top = 2) => {
    if (end < from) return;
    context.fillStyle = colour(name);
    context.fillRect(x(begin), top, Math.max(1, x(end) - x(begin)), height - 2 * top);
  };
  if (each.arrival) bar("queued", each.arrival, each.first ?? now, 6);
  const spans = each.spans.length ? each.spans : whole(each, now);
  spans.forEach((span, place) => {
    const open = span.kind === "preempted" && span.end === span.begin && place === spans.length - 1 && !each.ended;
    bar(span.kind, span.begin, open ? now : span.end, span.kind === "preempted" ? 6 : 2);
    if (span.kind === "prefill" && span.end >= from) {
      context.fillStyle = colour("card");  // chunks stay separate
      context.fillRect(x(span.begin), 2, 1, height - 4);
    }
  });
  canvas.title = each.prompt ? `prompt ${count(each.prompt)} tokens, from ${duration(now - each.arrival)} ago` : "";
}
