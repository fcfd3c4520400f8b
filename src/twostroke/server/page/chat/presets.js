// Settings under a name: system prompt, tools and sampling, kept in this browser.
import { announce } from "../announce.js";
import { readJson, write } from "../storage.js";
import { make } from "../text.js";

const KEY = "twostroke-presets";

export class Presets {
  /** values(): the present settings. use(values): makes these the settings from now on. */
  constructor(values, use) {
    Object.assign(this, { values, use });
    const kept = readJson(KEY);
    this.all = new Map(kept && typeof kept === "object" && !Array.isArray(kept) ? Object.entries(kept) : []);
    this.choice = make("select", { id: "preset", "aria-label": "Preset" });
    this.name = make("input", { id: "preset-name", "aria-label": "Name of a new preset", placeholder: "Name", maxlength: 60 });
    this.drop = make("button", { type: "button", onclick: () => this.delete() }, "Delete");
    this.choice.addEventListener("change", () => this.chosen());
    const form = make("form", { class: "presets" }, this.choice, this.drop, this.name);
    form.append(make("button", { type: "submit" }, "Save as preset"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.save(this.name.value.trim());
    });
    this.element = form;
    this.draw("");
  }

  draw(name) {
    const options = [...this.all.keys()].map((each) => make("option", { value: each }, each));
    this.choice.replaceChildren(make("option", { value: "" }, "No preset"), ...options);
    this.choice.value = name;
    this.drop.disabled = !name;
  }

  chosen() {
    const found = this.all.get(this.choice.value);
    this.drop.disabled = !found;
    if (found && typeof found === "object") this.use({ ...found });
  }

  save(name) {
    if (!name) {
      this.name.focus();
      return;
    }
    this.all.set(name, { ...this.values() });
    this.keep(name);
    this.name.value = "";
    announce(`The preset ${name} is kept`);
  }

  delete() {
    this.all.delete(this.choice.value);
    this.keep("");
    this.choice.focus();
  }

  keep(name) {
    write(KEY, JSON.stringify(Object.fromEntries(this.all)));
    this.draw(name);
  }
}
