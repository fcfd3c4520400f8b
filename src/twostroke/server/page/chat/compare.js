// Two answers to one question next to each other: other models or other settings, with the same messages and the same seed.
import { announce } from "../announce.js";
import { MarkdownView } from "../markdown.js";
import { count, make } from "../text.js";
import { requestOf } from "./request.js";
import { kept } from "./tokens.js";
import { figuresOf, streamed } from "./stream.js";
import { emptyAnswer } from "../kept/tree.js";

const NUMBERS = [
  ["temperature", "Temperature", { min: 0, max: 2, step: "any" }],
  ["top_p", "Top-p", { min: 0.01, max: 1, step: "any" }],
];
const MOST_SEED = 2 ** 31;
const byId = (id) => document.getElementById(id);

/** One of the two sides: its settings, and its answer as it comes. */
class Side {
  constructor(name) {
    this.name = name;
    this.model = make("select", { "aria-label": `Model, ${name}` });
    this.numbers = NUMBERS.map(([field, label, bounds]) => {
      const input = make("input", { type: "number", ...bounds, placeholder: "as in Settings", "aria-label": `${label}, ${name}` });
      return { field, input, element: make("label", {}, label, input) };
    });
    this.text = make("div", { class: "text" });
    this.notice = make("p", { class: "notice error", hidden: "" });
    this.figures = make("p", { class: "figures" });
    const chosen = make("div", { class: "choices" }, make("label", {}, "Model", this.model));
    chosen.append(...this.numbers.map(({ element }) => element));
    this.element = make("section", { "aria-label": `Answer, ${name}` }, chosen);
    this.element.append(make("div", { class: "answer" }, this.text), this.notice, this.figures);
    this.clear();
  }

  offer(models) {
    const had = this.model.value || models.id;
    const ids = models.answering.length ? models.answering : [models.id];
    this.model.replaceChildren(...ids.map((id) => make("option", { value: id }, id)));
    this.model.value = ids.includes(had) ? had : models.id;
  }

  get sampling() {
    const given = this.numbers.filter(({ input }) => input.value.trim() !== "" && input.checkValidity());
    return Object.fromEntries(given.map(({ field, input }) => [field, Number(input.value)]));
  }

  clear() {
    this.answer = emptyAnswer();
    this.tokens = [];
    this.end = null;
    this.text.replaceChildren();
    this.markdown = new MarkdownView(this.text);
    this.notice.hidden = true;
    this.figures.textContent = "";
  }

  draw() {
    this.markdown.update(this.answer.text);
    this.notice.textContent = this.answer.notice;
    this.notice.hidden = !this.answer.notice;
    this.figures.textContent = this.answer.figures;
  }

  /** asked: see `requestOf`, without its model. The answer is drawn while it comes, and errors are shown here. */
  async run(models, asked, seed) {
    const { answer, tokens } = this;
    answer.model = this.model.value;
    this.figures.textContent = "waits";
    try {
      const model = await models.facts(this.model.value);
      const { fitted, body } = await requestOf({ ...asked, model, turn: { ...asked.turn, answer } });
      const whole = { ...body, ...this.sampling, seed, logprobs: true };
      this.end = await streamed(whole, asked.signal, answer, (kind, data) => {
        if (kind === "tokens") tokens.push(...data);
        else if (kind === "thought") this.figures.textContent = "thinks";
        else if (kind === "text") this.markdown.update(answer.text);
      });
      if (this.end.reason === "length") answer.notice = `Cut after ${count(fitted.maxTokens)} tokens.`;
      answer.figures = `${await figuresOf(answer.id, this.end)} · seed ${seed}`;
    } catch (error) {
      const stopped = error.name === "AbortError";
      Object.assign(answer, { notice: stopped ? "You stopped this answer." : error.message, cut: stopped, failed: !stopped });
    }
    this.draw();
  }
}

/** Tells in words how two answers differ. left, right: tokens with their log probabilities. */
export function verdict(left, right) {
  const same = (a, b) => a.token === b.token && String(a.bytes) === String(b.bytes);
  const least = Math.min(left.length, right.length);
  const parts = left.findIndex((each, at) => at >= right.length || !same(each, right[at]));
  const at = parts < 0 && right.length > least ? least : parts;
  if (at >= 0) {
    const named = (each) => (each ? `“${each.token}”` : "the end");
    return `They part at token ${count(at + 1)}: ${named(left[at])} on the left, ${named(right[at])} on the right.`;
  }
  const differs = left.findIndex((each, place) => each.logprob !== right[place].logprob);
  if (differs < 0) return `Equal bits: the same ${count(least)} tokens with the same probabilities.`;
  return `The same ${count(least)} tokens; the probabilities differ from token ${count(differs + 1)} on.`;
}

export class Compare {
  /** at(): {earlier, turn}, the place of a new question. keep(before, question, files, answers): keeps them as versions of a turn. */
  constructor({ models, settings, contents, at, keep }) {
    Object.assign(this, { models, settings, contents, at, keep });
    this.dialog = byId("compare");
    this.question = byId("compare-question");
    this.seed = byId("compare-seed");
    this.said = byId("compare-said");
    this.keeper = byId("compare-keep");
    this.button = byId("compare-ask");
    this.sides = ["left", "right"].map((name) => new Side(name));
    byId("compare-sides").append(...this.sides.map(({ element }) => element));
    byId("compare-open").addEventListener("click", () => this.open());
    byId("compare-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.running) this.running.abort();
      else this.run();
    });
    this.keeper.addEventListener("click", () => this.keepBoth());
    this.dialog.addEventListener("close", () => this.running?.abort());
  }

  open() {
    this.place = this.at();
    this.question.value = this.place.turn.question;
    const { earlier } = this.place;
    byId("compare-place").textContent = earlier.length ? `It is asked after the ${count(earlier.length)} ${earlier.length === 1 ? "turn" : "turns"} before it.` : "";
    this.seed.value ||= this.settings.sampling.seed ?? Math.floor(Math.random() * MOST_SEED);
    for (const side of this.sides) {
      side.offer(this.models);
      side.clear();
    }
    this.said.textContent = "";
    this.keeper.hidden = true;
    this.dialog.showModal();
  }

  async run() {
    const question = this.question.value.trim();
    if (!question) return;
    const { earlier, turn } = this.place,
      running = new AbortController();
    this.running = running;
    this.button.textContent = "Stop";
    this.keeper.hidden = true;
    this.said.textContent = "";
    const { system, most, sampling } = this.settings,
      settings = { system, most, sampling, tools: null };
    const asked = { settings, contents: this.contents, earlier, begin: 0, signal: running.signal };
    for (const side of this.sides) side.clear();
    const runs = this.sides.map((side) =>
      side.run(this.models, { ...asked, turn: { ...turn, question } }, Number(this.seed.value)),
    );
    await Promise.all(runs);
    this.running = null;
    this.button.textContent = "Ask both";
    this.asked = question;
    const [left, right] = this.sides;
    this.said.textContent = left.end && right.end ? verdict(left.tokens, right.tokens) : "";
    this.keeper.hidden = !this.sides.some(({ answer }) => answer.text);
    announce(this.said.textContent || "Both have ended");
  }

  keepBoth() {
    const { earlier, turn } = this.place;
    const good = this.sides.filter(({ answer }) => answer.text);
    this.dialog.close();
    this.keep(earlier.at(-1) ?? null, this.asked, turn.files, good.map(({ answer }) => answer));
    for (const { answer, tokens } of good) this.contents.put(answer.key, kept(tokens, answer.text, ""));
  }
}
