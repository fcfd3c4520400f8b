// The live view: one stream of frames, and everything that draws from it.
import { call, events } from "/page/api.js";
import { explain } from "/page/explain.js";
import { PageMap } from "/page/kv.js";
import { Lanes } from "/page/lanes.js";
import { Latency } from "/page/latency.js";
import { Predicted } from "/page/predicted.js";
import { Roofline } from "/page/roofline.js";
import { Timeline } from "/page/timeline.js";

const AGAIN_MS = 2000;

export class Live {
  constructor(store, about, say) {
    this.store = store;
    this.say = say;
    this.paused = false;
    this.lanes = new Lanes(store, explain);
    this.timeline = new Timeline(store);
    this.drawers = [
      this.timeline, new Roofline(store, about.limits), new Predicted(store), new PageMap(store, about.page_tokens),
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
    new ResizeObserver(() => this.draw()).observe(document.getElementById("live"));
  }

  draw() {
    if (!this.store.frame) return;
    this.lanes.draw(Number(document.getElementById("window").value));
    for (const each of this.drawers) each.draw();
  }

  /** Follow for ever; a stream that ends is asked for again. */
  async follow() {
    for (;;) {
      try {
        for await (const frame of events(await call("/v1/engine/steps"))) {
          this.store.add(frame);
          this.say("live", true);
          if (!this.paused) this.draw();
        }
        this.say("the stream ended; asking again");
      } catch (error) {
        this.say(`not connected: ${error.message}`);
      }
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
}
