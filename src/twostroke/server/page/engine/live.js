// The live view: one stream of frames, and everything that is drawn from it.
import { call, events } from "../api.js";
import { explain } from "./explain.js";
import { PageMap } from "./kv.js";
import { Lanes } from "./lanes.js";
import { Latency } from "./latency.js";
import { Predicted } from "./predicted.js";
import { Replicas } from "./replicas.js";
import { Roofline } from "./roofline.js";
import { Summary } from "./summary.js";
import { Timeline } from "./timeline.js";

const AGAIN_MS = 2000;

/** Waits until the page is visible. */
async function shown() {
  while (document.hidden)
    await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

export class Live {
  constructor(store, about, say) {
    this.store = store;
    this.say = say;
    this.path = "/v1/engine/steps";
    this.paused = false;
    this.timeline = new Timeline(store);
    this.drawers = [
      new Summary(store, explain),
      new Lanes(store, explain),
      new Replicas(store, about),
      ...(about.limits ? [this.timeline, new Roofline(store, about.limits), new Predicted(store)] : []),
      new PageMap(store, about.page_tokens),
      new Latency(store),
    ];
    const pause = document.getElementById("pause");
    pause.addEventListener("click", () => {
      this.paused = !this.paused;
      this.timeline.frozen = this.paused;
      pause.setAttribute("aria-pressed", String(this.paused));
      pause.textContent = this.paused ? "Go on" : "Pause";
      this.draw();
    });
    document.getElementById("window").addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(document.getElementById("engine"));
    // A stream holds one of the few connections that a browser opens to a server. Six tabs would leave none for a chat.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.looking?.abort();
    });
    addEventListener("pagehide", () => this.looking?.abort());
  }

  draw() {
    if (!this.store.frame) return;
    for (const each of this.drawers) each.draw();
  }

  /** Follows the engine of another model, where each model has its own. */
  watch({ model }) {
    const path = `/v1/engine/steps?model=${encodeURIComponent(model)}`;
    if (path === this.path) return;
    this.path = path;
    this.store.clear();
    this.looking?.abort();
  }

  /** Follows while the page is visible. A stream that ends is opened again. */
  async follow() {
    for (;;) {
      await shown();
      this.looking = new AbortController();
      try {
        for await (const frame of events(await call(this.path, { signal: this.looking.signal }))) {
          this.store.add(frame);
          this.say("live", true);
          if (!this.paused) this.draw();
        }
        this.say("the stream ended; asking again");
      } catch (error) {
        if (this.looking.signal.aborted) continue;
        this.say(`not connected: ${error.message}`);
      }
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
}
