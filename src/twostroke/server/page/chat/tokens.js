// The tokens of an answer with their probabilities. They are recorded while it comes and shown as colours, and each is a
// place from which the reader can branch.
import { make } from "../text.js";

export const ALTERNATIVES = 5;
const LEVELS = [0.9, 0.6, 0.3, 0.1, 0.01]; // the least probability of each colour
const ENDS = /^<\|.*\|>$|^<\/?s>$|^<(end|eos|end_of_turn|pad)>$/;  // these end an answer, and nothing comes after them

/** The text of bytes; null where they are not whole characters. */
function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes));
  } catch {
    return null;
  }
}

/** Whether these bytes end within a character that later ones may complete. */
function waits(bytes) {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes), { stream: true });
  } catch {
    return false; // nothing completes them
  }
  return textOf(bytes) === null;
}

const rounded = (value) => Math.round(value * 1e4) / 1e4;

/** The API's tokens in the form that is kept: {text, at, logprob, top: [[text, logprob]]}, only those of this text. at: the place where
 * a token begins in the whole answer; null within a character. begun: the text before them. */
export function kept(heard, text, begun) {
  let whole = "",
    open = []; // bytes of a character that is not whole yet
  const found = heard.map(({ bytes: given, token, logprob, top_logprobs: top }) => {
    const bytes = given ?? [],
      from = whole.length,
      starts = !open.length;
    open.push(...bytes);
    if (!waits(open)) [whole, open] = [whole + new TextDecoder().decode(Uint8Array.from(open)), []];
    const others = top.map((each) => [textOf(each.bytes ?? []), rounded(each.logprob), each.token]);
    return { text: textOf(bytes) ?? token, from, starts, logprob: rounded(logprob), top: others };
  });
  const own = text.slice(begun.length),
    base = own ? whole.lastIndexOf(own) : -1;
  if (base < 0) return own ? [unmeasured(own, begun.length)] : [];
  return found
    .filter(({ from }) => from >= base && from < base + own.length)
    .map(({ text: shown, from, starts, logprob, top }) => {
      return { text: shown, at: starts ? begun.length + from - base : null, logprob, top };
    });
}

/** A piece of text as if it were one token. */
export const unmeasured = (text, at) => ({ text, at, logprob: null, top: [] });

const percent = (logprob) => {
  const share = 100 * Math.exp(logprob);
  return share >= 99.95 ? "100%" : share >= 0.1 ? `${share.toFixed(1)}%` : "under 0.1%";
};
const named = (text) => `“${text.replaceAll("\n", "↵")}”`;

function levelOf(logprob) {
  if (logprob === null) return "none";
  const level = LEVELS.findIndex((least) => Math.exp(logprob) >= least);
  return level < 0 ? LEVELS.length : level;
}

export class TokenMap {
  /** tokens: tokens in the form of `kept`. branch(at, text): asks for another answer that has this text from there on. */
  constructor(tokens, branch) {
    Object.assign(this, { tokens, branch });
    this.pinned = -1;
    this.detail = make("div", { class: "detail", role: "group", "aria-label": "The chosen token" });
    this.marks = tokens.map((token, place) => this.mark(token, place));
    this.field = make("div", { class: "marks", role: "group", "aria-label": "Tokens, coloured by probability" });
    this.field.append(...this.marks);
    this.field.addEventListener("pointerover", (event) => this.over(event.target));
    this.field.addEventListener("pointerleave", () => this.show(this.pinned));
    this.field.addEventListener("focusin", (event) => this.pin(this.marks.indexOf(event.target)));
    this.field.addEventListener("click", (event) => this.pin(this.marks.indexOf(event.target)));
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.element = make("div", { class: "tokens" }, this.legend(), this.field, this.detail);
    if (this.marks.length) this.marks[0].tabIndex = 0;
    this.show(-1);
  }

  mark({ text, logprob }, place) {
    const label = logprob === null ? `${text}, not measured` : `${text}, ${percent(logprob)}`;
    const signs = text.includes("\n") ? text.replace("\n", "↵\n") : text;
    return make(
      "span",
      { class: `token level-p${levelOf(logprob)}`, role: "button", tabindex: "-1", "aria-label": label, "data-place": place },
      signs,
    );
  }

  legend() {
    const known = this.tokens.map(({ logprob }) => logprob).filter((each) => each !== null);
    const mean = known.reduce((sum, each) => sum + each, 0) / known.length;
    const keys = [...LEVELS, 0].map((least, level) =>
      make("span", { class: `token level-p${level}` }, least ? `${100 * least}%` : "less"),
    );
    const words = known.length ? `${known.length} tokens, perplexity ${Math.exp(-mean).toFixed(2)}` : "No token was measured.";
    return make("p", { class: "figures legend" }, `${words} · at least `, ...keys);
  }

  over(target) {
    const place = this.marks.indexOf(target);
    if (place >= 0) this.show(place);
  }

  pin(place) {
    if (place < 0) return;
    if (this.pinned >= 0) this.marks[this.pinned].tabIndex = -1;
    this.pinned = place;
    this.marks[place].tabIndex = 0;
    this.show(place);
  }

  key(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.detail.querySelector("button:not(:disabled)")?.focus();
    }
    if (by === undefined) return;
    event.preventDefault();
    const last = this.marks.length - 1;
    this.marks[Math.min(last, Math.max(0, Math.max(0, this.pinned) + by))]?.focus();
  }

  show(place) {
    this.shown?.classList.remove("shown");
    this.shown = this.marks[place];
    this.shown?.classList.add("shown");
    const token = this.tokens[place];
    if (!token) {
      this.detail.replaceChildren(
        make("p", { class: "figures" }, "Point at a token, or tap it: what else could have stood there, and a branch from it."),
      );
      return;
    }
    const said = token.logprob === null ? "was not measured" : `had ${percent(token.logprob)}. Branch with:`;
    const choices = token.top.map(([text, logprob, shown]) => this.choice(token, text, logprob, shown));
    this.detail.replaceChildren(make("p", { class: "figures" }, `${named(token.text)} ${said}`), ...choices);
  }

  choice(token, text, logprob, shown) {
    const ends = text !== null && ENDS.test(text),
      off = text === null || ends || token.at === null;
    const label = `${ends ? "the end" : named(text ?? shown)} ${percent(logprob)}`;
    const button = make("button", { type: "button", class: text === token.text ? "own" : null }, label);
    button.disabled = off;
    if (off) button.title = ends ? "Nothing goes on after the end." : "This is a part of a character.";
    else button.addEventListener("click", () => this.branch(token, text, logprob));
    return button;
  }
}
