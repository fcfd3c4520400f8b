// Keys for the actions of the buttons. Single keys work outside of text fields. People who speak to their computer can turn them off. A
// dialog lists all keys.
import { read, write } from "./storage.js";
import { make } from "./text.js";

const KEPT = "twostroke-keys";
const LAST = "#messages > .assistant:last-of-type";
const KEYS = [
  ["?", "Show this list", "#keys-open"],
  ["/", "Go to the message field", "#question"],
  ["n", "Begin a new chat", "#clear"],
  ["s", "Search in all chats", "#chats-open"],
  ["m", "Choose the model", "#models-open"],
  ["a", "Attach a file", "#attach"],
  ["v", "Compare two answers", "#compare-open"],
  ["e", "Edit the last question", "#messages > .user:nth-last-of-type(2) .edit"],
  ["r", "Regenerate the last answer", `${LAST} .again`],
  ["c", "Copy the last answer", `${LAST} .actions .copy`],
  ["t", "Show the tokens of the last answer", `${LAST} .show-tokens`],
  ["b", "Back to the previous version of the last answer", `${LAST} .versions .back`],
  ["f", "Forward to its next version", `${LAST} .versions .next`],
];
const ALWAYS = [
  ["Ctrl+K", "Search in all chats, from anywhere"],
  ["Esc", "Stop the answer; leave a field or a dialog"],
];
const byId = (id) => document.getElementById(id);
const isField = (element) => Boolean(element?.closest?.("input, textarea, select, [contenteditable]"));

export class Shortcuts {
  constructor() {
    this.dialog = byId("keys");
    const box = byId("keys-single");
    box.checked = read(KEPT) !== "off";
    box.addEventListener("change", () => write(KEPT, box.checked ? "on" : "off"));
    const rows = (keys) => keys.map(([key, words]) => make("div", {}, make("dt", {}, make("kbd", {}, key)), make("dd", {}, words)));
    byId("keys-list").append(...rows(KEYS), ...rows(ALWAYS));
    byId("keys-open").addEventListener("click", () => this.dialog.showModal());
    document.addEventListener("keydown", (event) => this.pressed(event, box.checked));
  }

  pressed(event, single) {
    if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      this.press(event, "#chats-open");
    } else if (event.key === "Escape") this.escape(event);
    else if (single && !event.ctrlKey && !event.metaKey && !event.altKey && !isField(event.target)) {
      const found = KEYS.find(([key]) => key === event.key);
      if (found) this.press(event, found[2]);
    }
  }

  /** Presses a button, unless it is hidden. */
  press(event, css) {
    const target = document.querySelector(css);
    if (!target?.checkVisibility({ visibilityProperty: true }) || target.disabled) return;
    event.preventDefault();
    target.focus();
    if (!isField(target)) target.click();
  }

  escape(event) {
    const stop = byId("stop");
    if (!stop.hidden) {
      event.preventDefault();
      stop.click();
    } else if (isField(event.target)) event.target.blur();
  }
}
