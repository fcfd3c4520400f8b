// Inline marks of markdown in one pass: code, emphasis, links. A mark that is not closed is text.
import { filled, make } from "./text.js";

const PUNCTUATION = /[\p{P}\p{S}]/u,
  SPACE = /\s/;
const MOST_ADDRESS = 2000;

/** An address that may be clicked; null for every other scheme, and for addresses of this server. */
export function safeAddress(text) {
  if (!/^(?:https?:\/\/|mailto:)/i.test(text)) return null;
  try {
    return new URL(text).href;
  } catch {
    return null;
  }
}

function link(address, parts) {
  return filled(make("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }), parts);
}

/** A fragment of the text's inline marks. */
export function inline(text) {
  return filled(document.createDocumentFragment(), new Scanner(text).run());
}

class Scanner {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.parts = [];  // strings and elements
    this.open = []; // marks that may close later: {mark, length, place in parts}
    this.openOf = { "*": 0, _: 0, "~": 0 };
    this.brackets = []; // places of "["
    this.noTicks = new Set(); // lengths of runs of backticks that nothing closes
  }

  run() {
    let plain = 0;
    const flush = () => {
      if (plain < this.at) this.parts.push(this.text.slice(plain, this.at));
    };
    while (this.at < this.text.length) {
      const reader = READERS[this.text[this.at]];
      if (!reader) {
        this.at += 1;
        continue;
      }
      flush();
      const before = this.at;
      reader.call(this);
      if (this.at === before) this.parts.push(this.text[this.at++]);  // this is no mark here
      plain = this.at;
    }
    flush();
    return this.parts;
  }

  runOf(mark) {
    let end = this.at;
    while (this.text[end] === mark) end += 1;
    return end - this.at;
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === undefined || !PUNCTUATION.test(next)) return;
    this.parts.push(next);
    this.at += 2;
  }

  ticks() {
    const length = this.runOf("`");
    const begin = this.at + length;
    const end = this.noTicks.has(length) ? -1 : this.closing(begin, length);
    if (end < 0) {
      this.noTicks.add(length);
      this.parts.push("`".repeat(length));
      this.at = begin;
      return;
    }
    const code = this.text.slice(begin, end).replaceAll("\n", " ");
    const trimmed = code.startsWith(" ") && code.endsWith(" ") && code.trim() ? code.slice(1, -1) : code;
    this.parts.push(make("code", {}, trimmed));
    this.at = end + length;
  }

  closing(from, length) {
    for (let at = this.text.indexOf("`", from); at >= 0; at = this.text.indexOf("`", at)) {
      let end = at;
      while (this.text[end] === "`") end += 1;
      if (end - at === length) return at;
      at = end;
    }
    return -1;
  }

  emphasis() {
    const mark = this.text[this.at];
    let length = this.runOf(mark);
    const before = this.text[this.at - 1] ?? " ",
      after = this.text[this.at + length] ?? " ";
    this.at += length;
    if (mark === "~" && length !== 2) {
      this.parts.push(mark.repeat(length));
      return;
    }
    const left = !SPACE.test(after) && (!PUNCTUATION.test(after) || SPACE.test(before) || PUNCTUATION.test(before));
    const right = !SPACE.test(before) && (!PUNCTUATION.test(before) || SPACE.test(after) || PUNCTUATION.test(after));
    const opens = mark === "_" ? left && (!right || PUNCTUATION.test(before)) : left;
    const closes = mark === "_" ? right && (!left || PUNCTUATION.test(after)) : right;
    if (closes) length = this.close(mark, length);
    if (!length) return;
    if (opens) {
      this.open.push({ mark, length, place: this.parts.length });
      this.openOf[mark] += 1;
    }
    this.parts.push(mark.repeat(length));
  }

  /** Wraps everything since the openers. Returns the length that is left over. */
  close(mark, length) {
    while (length && this.openOf[mark]) {
      while (this.open.at(-1).mark !== mark) this.forget();
      const opener = this.open.at(-1);
      const used = mark === "~" ? 2 : Math.min(2, opener.length, length);
      const tag = mark === "~" ? "del" : used === 2 ? "strong" : "em";
      this.parts.push(filled(make(tag), this.parts.splice(opener.place + 1)));
      while (this.brackets.at(-1) > opener.place) this.brackets.pop();  // these brackets lie inside the new element
      opener.length -= used;
      length -= used;
      if (opener.length) this.parts[opener.place] = mark.repeat(opener.length);
      else {
        this.forget();
        this.parts.splice(opener.place, 1);
      }
    }
    return length;
  }

  forget() {
    this.openOf[this.open.pop().mark] -= 1;
  }

  bracket() {
    this.brackets.push(this.parts.length);
    this.parts.push("[");
    this.at += 1;
  }

  /** Handles "]": a link where an address follows. An address that is not safe stays text. */
  endBracket() {
    const place = this.brackets.pop();
    if (place === undefined || this.text[this.at + 1] !== "(") return;
    const rest = this.text.slice(this.at + 2, this.at + 2 + MOST_ADDRESS);
    const found = /^\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+"[^"]*")?\s*\)/.exec(rest);
    const address = found && safeAddress(found[1]);
    if (!address || place >= this.parts.length) return;
    while (this.open.length && this.open.at(-1).place > place) this.forget();
    const inner = this.parts.splice(place).slice(1);
    const before = this.parts.at(-1);
    // for an image, its words are shown
    if (typeof before === "string" && before.endsWith("!")) this.parts.splice(-1, 1, before.slice(0, -1));
    this.parts.push(link(address, inner.length ? inner : [address]));
    this.at += 2 + found[0].length;
  }

  angle() {
    const found = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/i.exec(
      this.text.slice(this.at, this.at + MOST_ADDRESS + 2),
    );
    const address = found && safeAddress(found[1]);
    if (!address) return;
    this.parts.push(link(address, [found[1]]));
    this.at += found[0].length;
  }

  bare() {
    if (/\w/.test(this.text[this.at - 1] ?? "")) return;
    const found = /^https?:\/\/[^\s<>"'`*\]]+/.exec(this.text.slice(this.at, this.at + MOST_ADDRESS));
    if (!found) return;
    let shown = found[0].replace(/[.,;:!?]+$/, "");
    if (shown.endsWith(")") && !shown.includes("(")) shown = shown.slice(0, -1);
    const address = safeAddress(shown);
    if (!address || this.brackets.length) return;
    this.parts.push(link(address, [shown]));
    this.at += shown.length;
  }

  newline() {
    this.parts.push(make("br"));
    this.at += 1;
  }
}

const READERS = {
  "\\": Scanner.prototype.escape,
  "`": Scanner.prototype.ticks,
  "\n": Scanner.prototype.newline,
  "*": Scanner.prototype.emphasis,
  _: Scanner.prototype.emphasis,
  "~": Scanner.prototype.emphasis,
  "[": Scanner.prototype.bracket,
  "]": Scanner.prototype.endBracket,
  "<": Scanner.prototype.angle,
  h: Scanner.prototype.bare,
};
