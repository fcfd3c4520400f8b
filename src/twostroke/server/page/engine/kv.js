// The map of KV pages: a cell for each page, coloured by its owner.
import { colour, surface } from "../canvas.js";
import { count } from "../text.js";

const STATES = ["free", "own", "kept", "shared", "cached"];

export class PageMap {
  constructor(store, pageTokens) {
    this.store = store;
    this.pageTokens = pageTokens;
    this.canvas = document.getElementById("kv");
    this.text = document.getElementById("kv-text");
  }

  draw() {
    const found = surface(this.canvas);
    const spans = this.store.frame?.pages;
    if (!found || !spans?.length) return;
    const { context, width, height } = found;
    const total = spans.reduce((sum, [, pages]) => sum + pages, 0);
    let size = Math.max(1, Math.floor(Math.sqrt((width * height) / total)));
    while (size > 1 && Math.floor(width / size) * Math.floor(height / size) < total) size -= 1;
    const across = Math.floor(width / size),
      inner = size > 3 ? size - 1 : size;
    const each = Math.max(1, Math.ceil(total / (across * Math.floor(height / size))));  // pages of a cell, in very large pools
    const counts = STATES.map(() => 0);
    let page = 0;
    for (const [state, pages] of spans) {
      counts[state] += pages;
      context.fillStyle = colour(STATES[state]);
      for (const end = page + pages; page < end; page += 1) {
        if (page % each) continue;
        const cell = page / each;
        context.fillRect((cell % across) * size, Math.floor(cell / across) * size, inner, inner);
      }
    }
    const [free, own, kept, shared, cached] = counts;
    const { prefix_query_tokens: asked, prefix_hit_tokens: hit } = this.store.frame.gauges;
    const share = asked ? `; ${Math.round((100 * hit) / asked)}% of prompt tokens were found here` : "";
    this.text.textContent =
      `${count(total)} pages of ${this.pageTokens} tokens: ${count(own + kept + shared)} in use ` +
      `(${count(shared)} by several requests), ${count(cached)} cached, ${count(free)} free${share}`;
  }
}
