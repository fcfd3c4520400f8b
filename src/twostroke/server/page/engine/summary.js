// What the engine does now: one sentence, six figures, and a bar for the last answer. Elements stay, and only text changes.
import { partsBar, partsOf } from "./parts.js";
import { count, duration, make, rate } from "../text.js";

const WINDOW_S = 10,
  SMALL = 0.01;
const TILES = {
  running: "Requests that are answered now",
  waiting: "Requests that wait for a place",
  prefill: "Prompt tokens read a second, while prompts are read",
  decode: "Tokens written a second, all answers together, while answers are written",
  "token gap": "Time between two tokens of one answer: half of the gaps are shorter (ITL p50)",
  "KV memory": "Share of the KV memory's pages in use",
};

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A figure and its unit, which is smaller. */
class Tile {
  constructor(name, words) {
    this.number = make("span");
    this.unit = make("small");
    this.element = make(
      "div",
      { title: words },
      make("dt", {}, name),
      make("dd", { "data-tile": name }, this.number, this.unit),
    );
  }

  put(text) {
    const [, number, unit] = /^(\S*)(.*)$/.exec(text);
    put(this.number, number);
    put(this.unit, unit);
  }
}

const several = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export class Summary {
  constructor(store, explain) {
    this.store = store;
    this.now = document.getElementById("now");
    this.bar = document.getElementById("last-parts");
    this.text = document.getElementById("last-text");
    this.tiles = Object.fromEntries(Object.entries(TILES).map(([name, words]) => [name, new Tile(name, words)]));
    document.getElementById("tiles").replaceChildren(...Object.values(this.tiles).map((tile) => tile.element));
    this.shown = null; // the last answer's account
    this.why = document.getElementById("last-why");
    this.why.addEventListener("click", () => explain(this.shown.request));
  }

  draw() {
    const { frame } = this.store;
    put(this.now, this.sentence(frame));
    for (const [name, value] of Object.entries(this.figures(frame))) this.tiles[name].put(value);
    this.drawLast();
  }

  sentence({ gauges, requests }) {
    const phases = { queued: 0, filling: 0, decoding: 0, back: 0 };
    for (const [, phase] of requests) phases[phase] += 1;
    const doing = [];
    if (phases.filling) doing.push(`reading ${several(phases.filling, "prompt")}`);
    if (phases.decoding) doing.push(`writing ${several(phases.decoding, "answer")}`);
    const waiting = gauges.waiting || phases.queued + phases.back;
    if (!doing.length && gauges.running) doing.push(`answering ${several(gauges.running, "request")}`);
    if (!doing.length && !waiting) return "Idle.";
    if (waiting) doing.push(`${count(waiting)} waiting`);
    const words = doing.join(", ");
    return `${words[0].toUpperCase()}${words.slice(1)}.`;
  }

  figures({ gauges, latency, pages, replicas }) {
    const steps = this.store.recent(WINDOW_S);
    const sum = (name, from = steps) => from.reduce((total, step) => total + step[name], 0);
    const decoding = steps.filter((step) => step.decodeTokens);
    const all = pages.reduce((total, [, many]) => total + many, 0);
    const told = replicas.reduce((total, each) => total + this.store.told(each), 0);
    const used = pages.reduce((total, [state, many]) => total + (state >= 1 && state <= 3 ? many : 0), 0);
    return {
      running: count(gauges.running ?? 0),
      waiting: count(gauges.waiting ?? 0),
      prefill: rate(sum("prefillTokens"), sum("prefill")),
      decode: replicas.length
        ? rate(told, this.store.toldSeconds())
        : rate(sum("decodeTokens"), sum("seconds", decoding)),
      "token gap": duration(latency.itl?.p50_s),
      "KV memory": all ? `${Math.round((100 * used) / all)}%` : "–",
    };
  }

  drawLast() {
    const last = this.store.lastEnded();
    if (!last || last === this.shown) return;
    this.shown = last;
    const parts = partsOf(last.parts_s);
    partsBar(this.bar, parts);
    const whole = parts.reduce((sum, { seconds }) => sum + seconds, 0);
    put(
      this.text,
      `${several(last.output_tokens, "token")} in ${duration(whole)}: ` +
        parts
          .filter(({ seconds }) => seconds > SMALL * whole)
          .map(({ name, seconds }) => `${name} ${duration(seconds)}`)
          .join(" · ") +
        guessesTold(last.guesses),
    );
    this.why.hidden = false;
  }
}

function guessesTold(guesses) {
  if (!guesses) return "";
  const won = `${duration(guesses.won_s)} won, ${duration(guesses.lost_s)} for verifying (predicted)`;
  return ` · guesses ${guesses.accepted} of ${guesses.guessed} accepted: ${won}`;
}
