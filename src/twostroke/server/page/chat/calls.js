// Calls of tools in an answer: a card for each, with a field for its result. The reader takes the part of the tool.
import { make } from "../text.js";

/** Adds the pieces of calls from one event to the calls so far: {id, name, arguments, result}. */
export function heardCalls(calls, pieces) {
  for (const { index, id, function: called } of pieces) {
    calls[index] ??= { id: id ?? "", name: "", arguments: "", result: null };
    calls[index].name += called?.name ?? "";
    calls[index].arguments += called?.arguments ?? "";
  }
}

/** The messages of an answer with calls: the calls, and their results. */
export function messagesOfCalls(text, calls) {
  const asked = calls.map(({ id, name, arguments: given }) => ({
    id,
    type: "function",
    function: { name, arguments: given },
  }));
  const results = calls.map(({ id, result }) => ({ role: "tool", tool_call_id: id, content: result ?? "" }));
  return [{ role: "assistant", content: text, tool_calls: asked }, ...results];
}

/** Whether each call has its result. */
export const answered = (calls) => calls.every(({ result }) => result !== null);

/** Arguments in a readable form: JSON on several lines, other text unchanged. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export class CallsView {
  /** send(): goes on with the results, which are then in `calls`. runnerOf(tool): what can run the tool, or null. */
  constructor(calls, send, runnerOf = () => null) {
    Object.assign(this, { calls, send, runnerOf });
    this.cards = [];
    this.fields = make("div");
    this.form = make("form", { class: "calls", hidden: "" }, this.fields);
    this.button = make("button", { type: "submit", class: "main" }, "Send the results");
    this.ends = make("p", { class: "ends", hidden: "" }, this.button);
    this.form.append(this.ends);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.sendResults();
    });
  }

  draw() {
    this.form.hidden = this.calls.length === 0;
    for (const call of this.calls.slice(this.cards.length)) this.cards.push(this.card(call));
    for (const [place, { name, arguments: given }] of this.calls.entries()) {
      this.cards[place].name.textContent = name;
      this.cards[place].given.textContent = pretty(given);
    }
  }

  card(call) {
    const name = make("strong");
    const given = make("pre");
    const field = make("textarea", { rows: 2, "aria-label": "Result of the call", placeholder: "The tool's result" });
    const shown = make("pre", { class: "result", hidden: "" });
    const run = make("button", { type: "button", class: "run" });  // shown where the call can run
    this.fields.append(make("section", { class: "call" }, make("p", {}, "Call of ", name), given, field, shown));
    return { call, name, given, field, shown, run };
  }

  /** A call runs when the reader agrees. Its result can be read and changed before it is sent. */
  offer({ call, run, field }, open) {
    const runner = open ? this.runnerOf(call.name) : null;
    if (!runner) return run.remove();
    field.before(run);
    run.textContent = `Run at ${runner.name}`;
    run.onclick = async () => {
      run.disabled = true;
      try {
        field.value = await runner.run(call.arguments);
      } catch (error) {
        field.value = `Error: ${error.message}`;
      }
      run.disabled = false;
    };
  }

  /** Called when the answer has ended: results can be given, or are shown. */
  end() {
    this.draw();
    const open = !answered(this.calls);
    for (const card of this.cards) {
      const { call, field, shown } = card;
      this.offer(card, open);
      field.hidden = !open;
      shown.hidden = open;
      shown.textContent = call.result ?? "";
    }
    this.ends.hidden = !open;
  }

  sendResults() {
    const results = this.cards.map(({ field }) => field.value);
    for (const [place, result] of results.entries()) this.calls[place].result = result;
    if (this.send() === false) {
      for (const call of this.calls) call.result = null;
      return;
    }
    this.end();
  }
}
