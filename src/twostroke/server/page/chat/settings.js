// Settings of the chat: system prompt and sampling. An empty field leaves the choice to the server and the model.
import { Mcp } from "./mcp.js";
import { Presets } from "./presets.js";
import { ALTERNATIVES } from "./tokens.js";
import { readJson, write } from "../storage.js";
import { count, make } from "../text.js";

const KEY = "twostroke-settings";
const DEFAULTS = { max_tokens: 1024 };

const FIELDS = [
  {
    name: "max_tokens",
    label: "Most tokens of an answer",
    min: 1,
    step: 1,
    empty: "all there is room for",
    help: "Where the context has less room, the answer gets what is left. Empty: all of it.",
  },
  {
    name: "temperature",
    label: "Temperature",
    min: 0,
    max: 2,
    step: 0.1,
    help: "0 takes the likeliest token each time; higher is more varied.",
  },
  {
    name: "top_p",
    label: "Top-p",
    min: 0.01,
    max: 1,
    step: 0.01,
    help: "Draw from the likeliest tokens that together have this probability.",
  },
  {
    name: "top_k",
    label: "Top-k",
    min: 0,
    step: 1,
    max: 1000,
    help: "Draw from this many of the likeliest tokens; 0: from all.",
  },
  {
    name: "min_p",
    label: "Min-p",
    min: 0,
    max: 1,
    step: 0.01,
    help: "Leave out tokens below this share of the likeliest one's probability. Empty: the model's value, or 0.1 without any limit.",
  },
  {
    name: "repetition_penalty",
    label: "Repetition penalty",
    min: 0.1,
    max: 2,
    step: 0.05,
    help: "Above 1: words that were there before become less likely.",
  },
  {
    name: "seed",
    label: "Seed",
    min: 0,
    max: 2 ** 31 - 1,
    step: 1,
    empty: "a new one each time",
    help: "The same seed and messages give the same answer.",
  },
];

/** A number within the field's bounds; null for none. */
function within(field, text, context) {
  const value = text.trim() === "" ? NaN : Number(text);
  if (!Number.isFinite(value)) return null;
  const most = field.name === "max_tokens" ? context - 1 : field.max;
  const inside = Math.min(most, Math.max(field.min, value));
  return field.step === 1 ? Math.round(inside) : inside;
}

/** Functions as the API takes them, from a JSON list of functions or of tools; null for any other text. */
function toolsOf(text) {
  try {
    const listed = JSON.parse(text);
    const named = listed.map((each) => (each.function ? each : { type: "function", function: each }));
    return named.length && named.every((each) => typeof each.function.name === "string") ? named : null;
  } catch {
    return null;
  }
}

export class Settings {
  constructor() {
    const kept = readJson(KEY);
    this.values = kept && typeof kept === "object" ? { ...kept } : { ...DEFAULTS };
    this.dialog = document.getElementById("settings");
    const use = (values) => {
      this.values = values;
      this.fit(this.context);
      this.keep();
      this.mcp.refresh();
    };
    const place = {
      get: (name) => this.values[name],
      set: (name, value) => {
        this.values[name] = value;
        this.keep();
      },
    };
    this.mcp = new Mcp(place);
    this.mcp.find();
    this.presets = new Presets(() => this.values, use);
    document.getElementById("settings-open").addEventListener("click", () => this.dialog.showModal());
  }

  /** Limits the values to the context of the model that answers. */
  fit(context) {
    this.context = context;
    for (const field of FIELDS) this.values[field.name] = within(field, String(this.values[field.name] ?? ""), context);
    this.draw();
  }

  get system() {
    return String(this.values.system ?? "");
  }

  /** Tools that the model may call, as the API takes them; null for none. */
  get tools() {
    const tools = [...(this.ownTools ?? []), ...this.mcp.tools];
    return tools.length ? tools : null;
  }

  /** The tools that the reader has written. */
  get ownTools() {
    return toolsOf(String(this.values.tools ?? ""));
  }

  /** The most tokens of an answer. Infinity means as many as there is room for. */
  get most() {
    return this.values.max_tokens ?? Infinity;
  }

  /** Fields of a request, without max_tokens. */
  get sampling() {
    const chosen = FIELDS.filter(({ name }) => name !== "max_tokens" && this.values[name] !== null);
    const measured = this.measures ? { logprobs: true, top_logprobs: ALTERNATIVES } : {};
    return { ...Object.fromEntries(chosen.map(({ name }) => [name, this.values[name]])), ...measured };
  }

  /** Whether the probabilities of tokens are asked for. */
  get measures() {
    return this.values.measures === true;
  }

  set measures(is) {
    this.values.measures = is;
    this.keep();
    document.getElementById("setting-measures").checked = is;
  }

  draw() {
    const system = make("textarea", { id: "setting-system", rows: 3, placeholder: "None" });
    system.value = this.system;
    system.addEventListener("change", () => {
      this.values.system = system.value.trim();
      this.keep();
    });
    const tools = make("textarea", { id: "setting-tools", rows: 3, placeholder: "None", spellcheck: "false" });
    tools.value = String(this.values.tools ?? "");
    tools.addEventListener("change", () => {
      this.values.tools = tools.value.trim();
      const wrong = this.values.tools && !this.ownTools;
      this.note.textContent = wrong ? "The tools are no JSON list of functions, so that none are offered." : "";
      this.keep();
    });
    this.note = make("p", { class: "figures", role: "status" });
    document
      .getElementById("settings-body")
      .replaceChildren(
        this.presets.element,
        make(
          "p",
          { class: "setting" },
          make("label", { for: "setting-system" }, "System prompt"),
          system,
          make(
            "span",
            { class: "figures" },
            "Stands before every chat. It tells the model who it is and how to answer.",
          ),
        ),
        make(
          "p",
          { class: "setting" },
          make("label", { for: "setting-tools" }, "Tools"),
          tools,
          make(
            "span",
            { class: "figures" },
            'A JSON list: [{"name": "weather", "parameters": {...}}]. A call comes as a card, and you write its result.',
          ),
        ),
        this.mcp.element,
        this.measuresRow(),
        make("div", { class: "settings" }, ...FIELDS.map((field) => this.row(field))),
        this.note,
        make(
          "p",
          { class: "ends" },
          make("button", { type: "button", id: "settings-reset", onclick: () => this.reset() }, "Back to the defaults"),
        ),
      );
  }

  measuresRow() {
    const box = make("input", { type: "checkbox", id: "setting-measures" });
    box.checked = this.measures;
    box.addEventListener("change", () => {
      this.measures = box.checked;
    });
    const words = `"Tokens" below an answer then shows each token's probability and ${ALTERNATIVES} alternatives.`;
    return make(
      "p",
      { class: "setting" },
      make("label", { class: "check" }, box, "Ask for the probabilities of tokens"),
      make("span", { class: "figures" }, words),
    );
  }

  row(field) {
    const { name, label, min, step, help } = field,
      most = name === "max_tokens" ? this.context - 1 : field.max;
    const id = `setting-${name}`;
    const input = make("input", {
      id,
      type: "number",
      min,
      max: most,
      step,
      placeholder: field.empty ?? "the model's own",
      "aria-describedby": `${id}-help`,
    });
    input.value = this.values[name] ?? "";
    input.addEventListener("change", () => this.change(field, input, most));
    return make(
      "p",
      { class: "setting" },
      make("label", { for: id }, label),
      input,
      make("span", { class: "figures", id: `${id}-help` }, help),
    );
  }

  change(field, input, most) {
    const value = within(field, input.value, this.context);
    const moved = value !== null && value !== Number(input.value);
    this.note.textContent = moved ? `${field.label} goes from ${field.min} to ${count(most)}; it is ${value} now.` : "";
    this.values[field.name] = value;
    input.value = value ?? "";
    this.keep();
  }

  reset() {
    this.values = { ...Object.fromEntries(FIELDS.map(({ name }) => [name, null])), ...DEFAULTS };
    this.values.max_tokens = Math.min(this.values.max_tokens, this.context - 1);
    this.keep();
    this.draw();
    this.mcp.refresh();
  }

  keep() {
    write(KEY, JSON.stringify(this.values));
  }
}
