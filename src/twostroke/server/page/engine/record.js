// Record steps and save them as a Chrome trace, which ui.perfetto.dev opens.
import { getJson } from "../api.js";
import { save } from "../download.js";

export class Recorder {
  constructor(store, say) {
    this.store = store;
    this.say = say;
    this.begin = null;
    this.button = document.getElementById("record");
    this.button.addEventListener("click", () => this.toggle());
  }

  async toggle() {
    const on = this.begin === null;
    this.button.setAttribute("aria-pressed", String(on));
    this.button.textContent = on ? "Stop and save" : "Record";
    if (on) {
      this.begin = this.store.now();
      return;
    }
    const begin = this.begin;
    this.begin = null;
    try {
      const trace = await getJson(`/v1/engine/trace?begin_s=${begin}&end_s=${this.store.now()}`);
      save("twostroke-trace.json", JSON.stringify(trace));
    } catch (error) {
      this.say(`The recording could not be saved: ${error.message}`);
    }
  }
}
