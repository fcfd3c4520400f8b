// The chat: questions are asked, answers come in; each keeps its figures. What no longer fits the context is left out, and said.
import { announce } from "../announce.js";
import { Chats } from "./chats.js";
import { fit, messagesOf, promptTokens } from "./fit.js";
import { Follower } from "./follow.js";
import { History, titleOf } from "./history.js";
import { Settings } from "./settings.js";
import { figuresOf, streamed } from "./stream.js";
import { AnswerView, QuestionView } from "./turn.js";
import { welcome } from "./welcome.js";
import { read, write } from "../storage.js";
import { count, make } from "../text.js";

const OPEN = "twostroke-open"; // this tab's chat: a reload shows it again
const MOST_READ_ALOUD = 600;
const byId = (id) => document.getElementById(id);
const emptyAnswer = () => ({ text: "", reasoning: "", figures: "", notice: "", failed: false, cut: false, id: "", calls: [] });

export class Chat {
  constructor(about) {
    this.model = about.model;
    this.context = about.settings.context;
    this.room = Math.min(this.context, about.settings.kv_tokens ?? Infinity);
    this.settings = new Settings(this.room);
    this.history = new History();
    this.chats = new Chats(
      this.history,
      (id) => {
        if (id !== this.chat.id) this.open(this.history.load(id));
      },
      (id) => {
        if (id === this.chat.id) this.open(null);
      },
    );
    this.follower = new Follower(byId("scroller"), byId("talk"), byId("newest"));
    this.list = byId("messages");
    this.running = null;
    welcome(this.model, (text) => this.send(text));
    this.listen();
    const kept = read(OPEN, true);
    this.open(kept ? this.history.load(kept) : null);
  }

  listen() {
    const field = byId("question");
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.sendField();
    });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.sendField();
    });
    byId("stop").addEventListener("click", () => this.running?.abort());
    byId("clear").addEventListener("click", () => {
      this.open(null);
      field.focus();
    });
    addEventListener("pagehide", () => {
      if (this.running) this.keep("The page was left before the answer ended.");
      this.left = true;
    });
    addEventListener("pageshow", () => {
      this.left = false;
    }); // the browser may bring the same page back
  }

  /** Show a kept chat, or a new one for null. */
  open(chat) {
    this.running?.abort();
    this.running = null;
    this.chat = chat ?? { id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, at: 0, from: 0, turns: [] };
    this.list.replaceChildren();
    this.views = [];
    byId("room").textContent = "";
    for (const turn of this.chat.turns) this.show(turn).end();
    this.changed();
    this.busy(false);
    this.follower.follow();
  }

  show(turn) {
    const place = this.views.length;
    const question = new QuestionView(turn.question, (text) => this.edit(place, text));
    const answer = new AnswerView(this.model, turn.answer, {
      again: () => this.edit(place, turn.question),
      goOn: () => this.goOn(place),
      sendResults: () => this.sendResults(place),
    });
    this.list.append(question.item, answer.item);
    this.views.push({ question, answer });
    return answer;
  }

  /** Title, first screen and the line above the turns that are still sent. */
  changed() {
    const { turns, from } = this.chat;
    byId("chat-title").textContent = titleOf(this.chat);
    byId("welcome").hidden = turns.length > 0;
    this.list.querySelector(".dropped")?.remove();
    if (from > 0 && this.views[from]) {
      const words = `The messages above no longer fit the context of ${count(this.room)} tokens, and are not sent.`;
      this.views[from].question.item.before(make("li", { class: "dropped" }, words));
    }
    write(OPEN, this.chat.id, true);
  }

  keep(notice = "") {
    if (notice) Object.assign(this.chat.turns.at(-1).answer, { notice, cut: true });
    this.chat.at = Date.now();
    if (this.history.save(this.chat)) return;
    byId("room").textContent = "This chat could not be kept: the browser's storage is full or off.";
  }

  sendField() {
    const field = byId("question"),
      text = field.value.trim();
    if (text && this.send(text)) field.value = "";
  }

  /** Ask the question of a turn anew; that turn and all later ones go. False where an answer is still coming. */
  edit(place, text) {
    if (this.running) return false;
    this.removeFrom(place);
    this.chat.from = 0;
    return this.send(text);
  }

  /** False where an answer is still coming. */
  send(text) {
    if (this.running) return false;
    const turn = { question: text, answer: emptyAnswer() };
    const earlier = [...this.chat.turns];
    this.chat.turns.push(turn);
    const view = this.show(turn);
    this.changed();
    this.begin(earlier, turn, view);
    return true;
  }

  /** Go on after an answer whose calls have their results. False where another answer is coming. */
  sendResults(place) {
    if (this.running) return false;
    this.removeFrom(place + 1);
    return this.send("");
  }

  /** Continue a cut answer where it ends; later turns go. */
  goOn(place) {
    if (this.running) return;
    this.removeFrom(place + 1);
    const turn = this.chat.turns[place];
    Object.assign(turn.answer, { notice: "", figures: "", failed: false, cut: false });
    this.begin(this.chat.turns.slice(0, place), turn, this.views[place].answer);
  }

  begin(earlier, turn, view) {
    this.follower.follow();
    this.running = new AbortController();
    this.busy(true);
    view.begin();
    this.keep();
    this.answer(this.chat, earlier, turn, view, this.running);
  }

  removeFrom(place) {
    this.chat.turns.splice(place);
    for (const { question, answer } of this.views.splice(place)) {
      question.item.remove();
      answer.item.remove();
    }
  }

  async answer(chat, earlier, turn, view, running) {
    const { answer } = turn;
    try {
      const end = await this.ask(chat, earlier, turn, view, running.signal);
      view.end();
      answer.figures = await figuresOf(answer.id, end);
    } catch (error) {
      if (this.left) return; // what came until then is kept
      const stopped = error.name === "AbortError";
      answer.failed = !stopped;
      answer.cut = stopped;
      answer.notice = stopped ? "You stopped this answer." : error.message;
    }
    view.end();
    const said = `${this.model}: ${answer.text.slice(0, MOST_READ_ALOUD)} ${answer.notice}`;
    announce(answer.failed ? `Error: ${answer.notice}` : said);
    if (this.chat !== chat) {
      // another one is shown by now
      if (this.history.load(chat.id)) this.history.save(chat);
      return;
    }
    this.running = null;
    this.keep();
    this.busy(false);
  }

  async ask(chat, earlier, turn, view, signal) {
    const { system, tools, most, sampling } = this.settings;
    const begun = turn.answer.text;
    const continued = begun ? { continue_final_message: true } : {};
    const fields = (from) => ({
      model: this.model,
      messages: messagesOf(system, earlier, from, turn.question, begun),
      ...(tools ? { tools } : {}),
      ...continued,
    });
    const tokensFrom = (from) => promptTokens(fields(from), signal);
    const fitted = await fit(tokensFrom, chat.from, earlier.length, this.room, most);
    if (fitted.from !== chat.from) {
      chat.from = fitted.from;
      if (this.chat === chat) this.changed();
    }
    const body = { ...fields(fitted.from), max_tokens: fitted.maxTokens, ...sampling };
    const end = await streamed(body, signal, turn.answer, (kind, data) => this.heard(view, kind, data));
    if (end.reason === "length") Object.assign(turn.answer, this.cut(fitted, end));
    else if (!turn.answer.text && !turn.answer.calls.length) turn.answer.notice = "The model ended without an answer.";
    byId("room").textContent = end.usage
      ? `${count(end.usage.total_tokens)} of ${count(this.room)} tokens of context used.`
      : "";
    return end;
  }

  heard(view, kind, data) {
    if (kind === "progress") view.reading(data);
    if (kind === "begun") view.writing(data);
    if (kind === "thought") view.thinks();
    if (kind === "text") view.thought(data);
    if (kind === "text" || kind === "thought") view.grow();
  }

  cut({ prompt, maxTokens }, { usage }) {
    const made = count(usage?.completion_tokens ?? maxTokens);
    const full = prompt + maxTokens >= this.room;
    const why = full ? `the context of ${count(this.room)} tokens is full` : "that is the limit in Settings";
    return { notice: `The answer was cut after ${made} tokens: ${why}.`, cut: !full };
  }

  busy(is) {
    const stop = byId("stop"),
      had = document.activeElement;
    byId("send").hidden = is;
    stop.hidden = !is;
    if (is && had === byId("send")) stop.focus();
    if (!is && had === stop) byId("question").focus();
    this.list.classList.toggle("busy", is);
  }
}
