// Markdown as elements. A model's text is hostile, so it becomes only text nodes, and links to http, https and mailto. Blocks are found
// line by line and inline marks in one pass, so the work grows with the length and no faster.
import { copyButton } from "./copy.js";
import { inline } from "./inline.js";
import { filled, make } from "./text.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const MOST_DEPTH = 6;
const SCROLLS = { tabindex: "0", role: "region", "aria-label": "Table" };  // the keyboard must reach elements that scroll

/** Blocks of the lines: {kind, lines, ...}. */
function blocksOf(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const block = blockAt(lines, at);
    blocks.push(block);
    at = block.end;
  }
  return blocks;
}

function blockAt(lines, at) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fenceAt(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading)
    return {
      kind: "heading",
      level: heading[1].length,
      text: (heading[2] ?? "").replace(/[ \t]#+[ \t]*$/, ""),
      end: at + 1,
    };
  if (RULE.test(line)) return { kind: "rule", end: at + 1 };
  if (QUOTE.test(line)) {
    const end = until(lines, at + 1, (each) => !QUOTE.test(each));
    return { kind: "quote", lines: lines.slice(at, end).map((each) => each.replace(/^ {0,3}> ?/, "")), end };
  }
  if (ITEM.test(line)) return listAt(lines, at);
  if (isTable(lines, at)) {
    const end = until(lines, at + 2, (each) => !each.includes("|"));
    return { kind: "table", lines: lines.slice(at, end), end };
  }
  const end = until(lines, at + 1, (each, place) => !each.trim() || begins(lines, place));
  return { kind: "paragraph", text: lines.slice(at, end).join("\n"), end };
}

function until(lines, from, stop) {
  let at = from;
  while (at < lines.length && !stop(lines[at], at)) at += 1;
  return at;
}

/** Whether a line ends a paragraph before it. */
function begins(lines, at) {
  const line = lines[at];
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line) ||
    ITEM.test(line) ||
    isTable(lines, at)
  );
}

function fenceAt(lines, at, [, mark, info]) {
  const closes = (line) => {
    const found = FENCE.exec(line);
    return found && found[1][0] === mark[0] && found[1].length >= mark.length && !found[2].trim();
  };
  const end = until(lines, at + 1, closes);
  return {
    kind: "code",
    language: info.trim().split(/\s/)[0].slice(0, 30),
    text: lines.slice(at + 1, end).join("\n"),
    end: Math.min(lines.length, end + 1),
  };
}

/** A list: its items with the lines that belong to them, found by the width of their mark. */
function listAt(lines, at) {
  const numbered = (found) => /\d/.test(found[2]);
  const first = ITEM.exec(lines[at]);
  const list = { kind: "list", ordered: numbered(first), start: parseInt(first[2], 10) || 0, items: [], end: at };
  const inside = first[1].length + (list.ordered ? 3 : 2);  // from this column on, a line belongs to the item
  let width = 0,
    blank = false;
  for (; list.end < lines.length; list.end += 1) {
    const line = lines[list.end],
      found = ITEM.exec(line);
    const indent = line.length - line.trimStart().length;
    if (!line.trim()) {
      blank = true;
      list.items.at(-1).push("");
      continue;
    }
    if (list.items.length && indent >= Math.min(width, inside))
      list.items.at(-1).push(line.slice(Math.min(indent, width)));
    else if (found && numbered(found) === list.ordered && !RULE.test(line)) {
      width = found[0].length;
      list.items.push([line.slice(width)]);
    } else if (blank || begins(lines, list.end)) break;
    else list.items.at(-1).push(line.trimStart());  // a paragraph of the item continues
    blank = false;
  }
  return list;
}

function cells(line) {
  const made = [""];
  const inner = line.trim().replace(/^\|/, "");
  for (let at = 0; at < inner.length; at += 1) {
    if (inner[at] === "\\" && inner[at + 1] === "|") {
      made[made.length - 1] += "|";
      at += 1;
    } else if (inner[at] === "|") made.push("");
    else made[made.length - 1] += inner[at];
  }
  if (!made.at(-1).trim()) made.pop();
  return made.map((cell) => cell.trim());
}

function isTable(lines, at) {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("-")) return false;
  const under = cells(lines[at + 1]);
  return under.length === cells(lines[at]).length && under.every((cell) => /^:?-+:?$/.test(cell));
}

function tableOf(block) {
  const [head, under, ...rows] = block.lines.map(cells);
  const side = under.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : null));
  const row = (tag, each) =>
    filled(
      make("tr"),
      head.map((_, place) => make(tag, { class: side[place] }, inline(each[place] ?? ""))),
    );
  return make(
    "div",
    { class: "scrolls", ...SCROLLS },
    make(
      "table",
      {},
      make("thead", {}, row("th", head)),
      filled(
        make("tbody"),
        rows.map((each) => row("td", each)),
      ),
    ),
  );
}

function codeOf(block) {
  const text = document.createTextNode(block.text);
  const code = make(
    "div",
    { class: "code" },
    make(
      "div",
      { class: "code-bar" },
      make("span", {}, block.language || "text"),
      copyButton(() => text.data),
    ),
    make("pre", { tabindex: "0" }, make("code", {}, text)),
  );
  return {
    element: code,
    grow: (next) => {
      text.data = next;
    },
  };
}

function itemOf(lines, depth) {
  const task = /^\[([ xX])\][ \t]+/.exec(lines[0]);
  const inner = task ? [lines[0].slice(task[0].length), ...lines.slice(1)] : lines;
  const item = make("li", { class: task ? "task" : null }, ...(task ? [task[1] === " " ? "☐ " : "☑ "] : []));
  const blocks = blocksOf(inner);
  const loose = blocks.filter((block) => block.kind === "paragraph").length > 1;
  for (const block of blocks)
    item.append(block.kind === "paragraph" && !loose ? inline(block.text) : elementOf(block, depth + 1));
  return item;
}

function elementOf(block, depth) {
  if (block.kind === "heading")
    return make(`h${Math.min(6, block.level + 3)}`, { class: `level-${block.level}` }, inline(block.text));
  if (block.kind === "rule") return make("hr");
  if (block.kind === "code") return codeOf(block).element;
  if (block.kind === "paragraph") return make("p", {}, inline(block.text));
  if (block.kind === "table") return tableOf(block);
  if (depth >= MOST_DEPTH) return make("p", {}, (block.lines ?? block.items.flat()).join("\n"));
  if (block.kind === "quote")
    return filled(
      make("blockquote"),
      blocksOf(block.lines).map((each) => elementOf(each, depth + 1)),
    );
  const list = make(block.ordered ? "ol" : "ul", { start: block.ordered && block.start !== 1 ? block.start : null });
  for (const lines of block.items) list.append(itemOf(lines, depth));
  return list;
}

/** A text that grows. Blocks that have not changed keep their elements, and so the reader's selection stays. */
export class MarkdownView {
  constructor(host) {
    this.host = host;
    this.shown = []; // {source, element, grow}
  }

  update(text) {
    const lines = text.replace(/\r\n?/g, "\n").replaceAll("\t", "    ").split("\n");
    const blocks = blocksOf(lines);
    let from = 0;
    blocks.forEach((block, place) => {
      const source = lines.slice(from, block.end).join("\n");
      from = block.end;
      const old = this.shown[place];
      if (old?.source === source) return;
      if (old?.grow && block.kind === "code" && old.language === block.language) old.grow(block.text);
      else this.put(place, block);
      Object.assign(this.shown[place], { source, language: block.language });
    });
    for (const gone of this.shown.splice(blocks.length)) gone.element.remove();
  }

  put(place, block) {
    const made = block.kind === "code" ? codeOf(block) : { element: elementOf(block, 0), grow: null };
    const old = this.shown[place];
    if (old) old.element.replaceWith(made.element);
    else this.host.append(made.element);
    this.shown[place] = made;
  }
}
