// The chat: answers are streamed, and each keeps its TTFT, its prefill speed and its decode speed.
import { call, events, getJson } from "/page/api.js";
import { explain } from "/page/explain.js";
import { count, duration, make, rate } from "/page/text.js";

const byId = (id) => document.getElementById(id);

export class Chat {
  constructor(model) {
    this.model = model;
    this.history = [];
    this.running = null;
    this.list = byId("messages");
    byId("ask").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    byId("question").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    byId("stop").addEventListener("click", () => this.running?.abort());
    byId("clear").addEventListener("click", () => this.clear());
  }

  clear() {
    this.running?.abort();
    this.history = [];
    this.list.replaceChildren();
    byId("question").focus();
  }

  async send() {
    const text = byId("question").value.trim();
    if (!text || this.running) return;
    byId("question").value = "";
    this.show("user", "You").text.textContent = text;
    this.history.push({ role: "user", content: text });
    const history = this.history;
    const view = this.show("assistant", this.model);
    this.running = new AbortController();
    this.busy(true);
    try {
      const answer = await this.ask(view);
      if (answer) history.push({ role: "assistant", content: answer });
    } catch (error) {
      const stopped = error.name === "AbortError";
      view.figures.textContent = stopped ? "Stopped." : error.message;
      view.figures.classList.toggle("error", !stopped);
      // The next question must not follow a question without an answer.
      if (view.text.textContent) history.push({ role: "assistant", content: view.text.textContent });
      else history.pop();
    } finally {
      view.progress.remove();
      this.running = null;
      this.busy(false);
    }
  }

  busy(is) {
    byId("send").disabled = is;
    byId("stop").disabled = !is;
  }

  show(role, name) {
    const view = {
      text: make("p", { class: "text" }), figures: make("p", { class: "figures", "aria-live": "polite" }),
      progress: make("progress", { max: 1, value: 0, "aria-label": "reading the prompt", hidden: "" }),
    };
    const item = make("li", { class: role }, make("p", { class: "who" }, name), view.text, view.progress, view.figures);
    this.list.append(item);
    item.scrollIntoView({ block: "end" });
    return view;
  }

  async ask(view) {
    const begun = performance.now();
    const answer = await call("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      signal: this.running.signal,
      body: JSON.stringify({
        model: this.model, messages: this.history, stream: true, stream_options: { include_usage: true },
        temperature: Number(byId("temperature").value), max_tokens: Number(byId("most").value), return_progress: true,
      }),
    });
    let first = null, usage = null, id = null, text = "";
    for await (const chunk of events(answer)) {
      if (chunk.error) throw new Error(chunk.error.message);
      id = chunk.id;
      usage = chunk.usage ?? usage;
      if (chunk.prompt_progress) this.reading(view, chunk.prompt_progress);
      const piece = chunk.choices[0]?.delta.content;
      if (chunk.choices.length && first === null) {
        first = performance.now();
        view.progress.remove();
        view.figures.textContent = `first token after ${duration((first - begun) / 1e3)}`;
      }
      if (piece) this.type(view, (text += piece));
    }
    await this.keep(view, id, usage, first === null ? null : (first - begun) / 1e3);
    return text;
  }

  type(view, text) {
    const below = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 60;
    view.text.textContent = text;
    if (below) this.list.scrollTop = this.list.scrollHeight;
  }

  reading(view, { total, processed, cache, waiting_ahead: ahead, time_ms: spent }) {
    view.progress.hidden = false;
    view.progress.max = total;
    view.progress.value = processed;
    const queue = ahead ? `waiting behind ${count(ahead)}` : `reading the prompt: ${count(processed)} of ${count(total)} tokens`;
    view.figures.textContent = `${queue}${cache ? ` (${count(cache)} cached)` : ""}, ${duration(spent / 1e3)}`;
  }

  /** The engine's own account gives the speeds; the time to first token is what this browser saw. */
  async keep(view, id, usage, ttft) {
    const told = [`TTFT ${duration(ttft)}`];
    try {
      const [own] = (await getJson(`/v1/requests/${encodeURIComponent(id)}/explain`)).completions;
      const read = own.num_prompt_tokens - own.num_cached_tokens;
      const cached = own.num_cached_tokens ? `, ${count(own.num_cached_tokens)} cached` : "";
      told.push(`prefill ${rate(read, own.ttft_s - own.parts_s.queue_s)} (${count(read)} tokens${cached})`);
      const spent = own.mean_itl_s ? 1 / own.mean_itl_s : 0;
      told.push(`decode ${spent ? rate(spent, 1) : "–"} (${count(own.num_output_tokens)} tokens)`);
    } catch {
      told.push(`${count(usage?.prompt_tokens ?? 0)} tokens read, ${count(usage?.completion_tokens ?? 0)} written`);
    }
    view.figures.replaceChildren(told.join(" · "), " ", make("button", { type: "button", onclick: () => explain(id) }, "Explain"));
  }
}
