// How one turn looks: the question with its buttons, and the answer as it grows.
import { CallsView } from "./calls.js";
import { filesView } from "./picture.js";
import { copyButton } from "../copy.js";
import { explain } from "../engine/explain.js";
import { MarkdownView } from "../markdown.js";
import { count, duration, make } from "../text.js";

const button = (label, onclick, name = null) => make("button", { type: "button", class: name, onclick }, label);

/** Arrows between the versions of a question or an answer: "2/3". They are hidden where there is one version. */
class Versions {
  /** what: "question" or "answer". show(version): shows it in place of the present one. */
  constructor(what, show) {
    this.show = show;
    this.place = make("span");
    this.back = button("‹", () => this.step(-1), "back");
    this.next = button("›", () => this.step(1), "next");
    this.back.setAttribute("aria-label", `Previous version of the ${what}`);
    this.next.setAttribute("aria-label", `Next version of the ${what}`);
    this.element = make("span", { class: "versions", role: "group", "aria-label": `Versions of the ${what}` });
    this.element.append(this.back, this.place, this.next);
    this.draw([], 0);
  }

  draw(all, shown) {
    Object.assign(this, { all, at: all.indexOf(shown) });
    this.element.hidden = all.length < 2;
    this.place.textContent = `${this.at + 1}/${all.length}`;
    this.back.disabled = this.at <= 0;
    this.next.disabled = this.at >= all.length - 1;
  }

  step(by) {
    const wanted = this.all[this.at + by];
    if (wanted) this.show(wanted, by < 0 ? "back" : "next");
  }
}

export class QuestionView {
  /** contents: the contents of its files. edited(text): asks the question anew. show(turn): shows another version of it. An empty text
   * without files is no question; then an answer goes on after results. */
  constructor({ question: text, files }, contents, { edited, show }) {
    Object.assign(this, { text, edited });
    this.bubble = make("div", { class: "text" }, text);
    this.bubble.hidden = !text;
    this.versions = new Versions("question", show);
    this.actions = make(
      "div",
      { class: "actions" },
      this.versions.element,
      copyButton(() => text),
      button("Edit", () => this.edit(), "edit"),
    );
    this.item = make("li", { class: "user" }, make("span", { class: "unseen" }, "You: "));
    if (files.length) this.item.append(filesView(files, contents));
    this.item.append(this.bubble, this.actions);
    this.item.hidden = !text && !files.length;
  }

  edit() {
    const field = make("textarea", { "aria-label": "Edit the message" });
    field.value = this.text;
    const close = () => {
      form.replaceWith(this.bubble, this.actions);
      this.actions.querySelector(".edit").focus();
    };
    const send = () => {
      if (field.value.trim() && this.edited(field.value.trim()) === false) close();
    };
    const form = make(
      "form",
      { class: "editor" },
      field,
      make(
        "p",
        { class: "figures" },
        "Sending it begins a branch. What is here now stays, and the arrows lead back to it.",
      ),
      make("p", { class: "ends" }, button("Cancel", close), make("button", { type: "submit", class: "main" }, "Send")),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send();
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    this.actions.remove();
    this.bubble.replaceWith(form);
    field.focus();
  }
}

export class AnswerView {
  /** answer: the shown answer, which is filled while it comes. again(): asks for another one. goOn(): continues a cut one.
   * sendResults(): goes on after calls that have their results. runnerOf(tool): see CallsView. show(turn): shows another answer.
   * tokens(): the view of its tokens. */
  constructor(answer, { again, goOn, sendResults, runnerOf, show, tokens }) {
    this.answer = answer;
    this.versions = new Versions("answer", show);
    this.who = make("span", { class: "who" });
    this.thoughts = make("div", { class: "thoughts" });
    this.summary = make("summary", {}, "Reasoning");
    this.reasoning = make("details", { class: "reasoning", hidden: "" }, this.summary, this.thoughts);
    this.text = make("div", { class: "text" });
    this.markdown = new MarkdownView(this.text);
    this.calls = new CallsView(answer.calls, sendResults, runnerOf);
    this.progress = make("progress", { max: 1, value: 0, "aria-label": "Reading the prompt", hidden: "" });
    this.notice = make("p", { class: "notice", hidden: "" });
    this.figures = make("p", { class: "figures" });
    this.goOn = button("Continue", goOn, "go-on");
    this.again = button("Regenerate", again, "again");
    this.tokensButton = button("Tokens", () => this.turnTokens(tokens), "show-tokens");
    this.tokensButton.setAttribute("aria-pressed", "false");
    this.explain = button("Explain", () => explain(answer.id), "explain");
    this.actions = make(
      "div",
      { class: "actions", hidden: "" },
      this.versions.element,
      copyButton(() => answer.text),
      this.goOn,
      this.again,
      this.tokensButton,
      this.explain,
    );
    this.item = make(
      "li",
      { class: "assistant" },
      this.who,
      this.reasoning,
      this.text,
      this.calls.form,
      this.progress,
      this.notice,
      this.figures,
      this.actions,
    );
    this.frame = 0;
    this.state = "";  // what the server does for it, until there are figures
    this.draw();
  }

  /** Draws once for each frame of the screen, however many tokens come in between. */
  grow() {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { text, reasoning, figures, notice, failed, model } = this.answer;
    this.who.textContent = model || "Answer";
    this.reasoning.hidden = !reasoning;
    if (this.thoughts.textContent !== reasoning) this.thoughts.textContent = reasoning;
    this.markdown.update(text);
    this.calls.draw();
    this.figures.textContent = figures || this.state;
    this.notice.hidden = !notice;
    this.notice.textContent = notice;
    this.notice.classList.toggle("error", failed);
  }

  /** Shows the tokens in place of the text, or the text again. */
  async turnTokens(made) {
    const shown = this.tokens ? null : await made();
    this.tokens?.remove();
    this.tokens = shown;
    this.text.hidden = Boolean(shown);
    if (shown) this.text.after(shown);
    this.tokensButton.setAttribute("aria-pressed", String(Boolean(shown)));
  }

  /** Reasoning is open while it comes, and folded by the first word of the answer. */
  thinks() {
    if (this.isThinking) return;
    this.isThinking = true;
    this.reasoning.open = true;
  }

  thought(seconds) {
    if (!this.isThinking || this.thoughtFor) return;
    this.thoughtFor = seconds;
    this.reasoning.open = false;
    this.summary.textContent = `Reasoning, ${duration(seconds)}`;
  }

  begin() {
    if (this.tokens) this.turnTokens();
    this.item.setAttribute("aria-busy", "true");
    this.item.classList.add("busy");
    this.begun = false;
    this.tell("sent");
  }

  tell(state) {
    this.state = state;
    this.figures.textContent = state;
  }

  /** words: what it waits for. Returns false where it waits no more. */
  waits(words) {
    if (this.progress.hidden && this.state && !this.begun) this.tell(words);
    return Boolean(this.state) && !this.begun;
  }

  reading({ total, processed, cache, waiting_ahead: ahead, time_ms: spent }) {
    this.progress.hidden = false;
    this.progress.max = total;
    this.progress.value = processed;
    const queue = ahead
      ? `waiting behind ${count(ahead)}`
      : `reading the prompt: ${count(processed)} of ${count(total)} tokens`;
    this.tell(`${queue}${cache ? ` (${count(cache)} cached)` : ""}, ${duration(spent / 1e3)}`);
  }

  writing(ttft) {
    this.begun = true;
    this.progress.hidden = true;
    this.tell(`TTFT ${duration(ttft)}, writing`);
  }

  end() {
    this.item.removeAttribute("aria-busy");
    this.item.classList.remove("busy");
    this.progress.hidden = true;
    this.state = "";
    this.actions.hidden = false;
    this.explain.hidden = !this.answer.id;
    this.tokensButton.hidden = !this.answer.text;
    this.goOn.hidden = !this.answer.cut || !this.answer.text;
    const { failed, text, calls } = this.answer;
    this.again.textContent = failed || !(text || calls.length) ? "Try again" : "Regenerate";
    this.draw();
    this.calls.end();
  }
}
