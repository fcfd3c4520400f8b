// The chat: questions are asked, answers come in, and each keeps its figures. Turns that no longer fit the context are left out, and a line
// tells it.
import { announce } from "../announce.js";
import { Attachments } from "./attachments.js";
import { Compare } from "./compare.js";
import { Follower } from "./follow.js";
import { requestOf } from "./request.js";
import { Settings } from "./settings.js";
import { figuresOf, streamed } from "./stream.js";
import { kept, TokenMap, unmeasured } from "./tokens.js";
import { AnswerView, QuestionView } from "./turn.js";
import { welcome } from "./welcome.js";
import { Chats } from "../kept/chats.js";
import { idsOf } from "../kept/contents.js";
import { added, chosen, emptyAnswer, newChat, pathOf, titleOf, versionsOf } from "../kept/tree.js";
import { read, write } from "../storage.js";
import { count, make } from "../text.js";

const OPEN = "twostroke-open"; // this tab's chat: a reload shows it again
const MOST_READ_ALOUD = 600;
const byId = (id) => document.getElementById(id);

export class Chat {
  /** kept: {history, contents}, which stay after the page is closed. */
  constructor(about, models, { history, contents }) {
    Object.assign(this, { models, history, contents });
    this.settings = new Settings();
    this.use(about);
    this.attachments = new Attachments(models);
    const { settings } = this;
    new Compare({ models, settings, contents, at: () => this.placeNow(), keep: (...kept) => this.keepVersions(...kept) });
    history.left = () => contents.sweep(idsOf(history.all()));
    history.changed = (chat) => {
      if (chat !== this.chat) return;
      if (this.running || this.list.querySelector(".editor")) this.changed();
      else this.showFrom(0);
    };
    this.chats = new Chats(history, contents, {
      shown: () => this.chat,
      open: (id, turn) => {
        if (id !== this.chat.id || turn >= 0) this.open(this.history.load(id));
        if (turn >= 0) this.views[this.path.indexOf(this.chat.turns[turn])]?.question.item.scrollIntoView();
      },
      gone: (id) => {
        if (id === this.chat.id) this.open(null);
      },
    });
    this.follower = new Follower(byId("scroller"), byId("talk"), byId("newest"));
    this.list = byId("messages");
    this.running = null;
    this.listen();
    const kept = read(OPEN, true);
    this.open(kept ? this.history.load(kept) : null);
  }

  /** From now on this model answers. */
  use({ model }) {
    this.model = model;
    this.room = this.models.room;
    this.settings.fit(this.room);
    welcome(model, (text) => this.send(text));
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

  /** Shows a kept chat, or a new one for null. */
  open(chat) {
    this.running?.abort();
    this.running = null;
    this.chat = chat ?? newChat();
    this.list.replaceChildren();
    this.path = [];
    this.views = [];
    byId("room").textContent = "";
    this.showFrom(0);
    this.busy(false);
    this.follower.follow();
  }

  /** Shows the chosen turns from this place on; earlier ones stay. */
  showFrom(place) {
    this.removeFrom(place);
    for (const turn of pathOf(this.chat).slice(place)) this.show(turn).end();
    this.changed();
  }

  show(turn) {
    const place = this.path.length;
    const other = (version, arrow) => this.switchTo(version, place, arrow);
    const question = new QuestionView(turn, this.contents, { edited: (text) => this.edit(place, text), show: other });
    const answer = new AnswerView(turn.answer, {
      again: () => this.again(place),
      goOn: () => this.goOn(place),
      sendResults: () => this.sendResults(place),
      runnerOf: (tool) => this.settings.mcp.runner(tool),
      show: other,
      tokens: () => this.tokensOf(place),
    });
    this.list.append(question.item, answer.item);
    this.path.push(turn);
    this.views.push({ question, answer });
    return answer;
  }

  /** Updates the title, the first screen, the arrows between versions, and the line above the turns that are still sent. */
  changed() {
    const { turns, from } = this.chat;
    byId("chat-title").textContent = titleOf(this.chat);
    byId("welcome").hidden = turns.length > 0;
    this.views.forEach(({ question, answer }, place) => {
      const { questions, answers } = versionsOf(this.chat, this.path[place]);
      question.versions.draw(questions, this.path[place]);
      answer.versions.draw(answers, this.path[place]);
    });
    this.list.querySelector(".dropped")?.remove();
    if (from > 0 && this.views[from]) {
      const words = `The messages above no longer fit the context of ${count(this.room)} tokens, and are not sent.`;
      this.views[from].question.item.before(make("li", { class: "dropped" }, words));
    }
    write(OPEN, this.chat.id, true);
  }

  keep(notice = "") {
    if (notice) Object.assign(this.path.at(-1).answer, { notice, cut: true });
    this.chat.at = Date.now();
    if (this.history.save(this.chat)) return;
    byId("room").textContent = "This chat could not be kept: the browser's storage is full or off.";
  }

  async sendField() {
    const field = byId("question");
    if (this.running || !(field.value.trim() || this.attachments.some)) return;
    const files = await this.attachments.take();
    if (!files || this.running) return;
    const text = field.value.trim();
    field.value = "";
    this.send(text, files.map(({ id, name, kind }) => ({ id, name, kind })), emptyAnswer(), files);
  }

  /** Shows another version of the turn in this place. arrow: the button that led to it, which keeps the focus. */
  switchTo(turn, place, arrow) {
    if (this.running) return;
    const had = document.activeElement;
    const side = this.views[place].question.item.contains(had) ? "question" : "answer";
    chosen(this.chat, turn);
    this.chat.from = 0;
    this.showFrom(place);
    this.history.save(this.chat);
    const { versions } = this.views[place][side];
    (versions[arrow].disabled ? versions[arrow === "back" ? "next" : "back"] : versions[arrow]).focus();
    announce(`Version ${versions.place.textContent} of the ${side}`);
  }

  /** Asks the question of a turn in other words, as a branch. Returns false where an answer is still coming. */
  edit(place, text) {
    return this.branch(place, { question: text, files: this.path[place].files });
  }

  /** Asks for another answer, as a branch. */
  again(place) {
    const { question, files } = this.path[place];
    return this.branch(place, { question, files });
  }

  /** The view of an answer's tokens. */
  async tokensOf(place) {
    const { answer } = this.path[place];
    const tokens = await this.contents.get(answer.key);
    if (tokens?.length) return new TokenMap(tokens, (...from) => this.branchFrom(place, tokens, ...from)).element;
    const ask = make("button", { type: "button", onclick: () => this.measure(place) }, "Ask for them, and regenerate");
    const words = "The probabilities of this answer's tokens were not asked for. ";
    return make("p", { class: "notice tokens-missing" }, words, ask);
  }

  measure(place) {
    this.settings.measures = true;
    this.again(place);
  }

  /** Asks for another answer that has this text in place of a token, and continues from there. */
  branchFrom(place, tokens, token, text, logprob) {
    if (this.running) return;
    const { question, files, answer: was } = this.path[place];
    const answer = { ...emptyAnswer(), text: was.text.slice(0, token.at) + text };
    const before = tokens.slice(0, tokens.indexOf(token));
    this.contents.held.set(answer.key, [...before, { ...token, text, logprob }]);
    this.settings.measures = true;
    this.branch(place, { question, files, answer });
  }

  /** Adds another turn in this place. Returns false where an answer is still coming. */
  branch(place, asked) {
    if (this.running) return false;
    this.removeFrom(place);
    this.chat.from = 0;
    return this.send(asked.question, asked.files, asked.answer);
  }

  /** The place of a new question: the end for a question in the field, else the place of the last question. */
  placeNow() {
    const question = byId("question").value.trim(),
      last = this.path.at(-1);
    if (question || !last) return { earlier: [...this.path], turn: { question, files: [] } };
    return { earlier: this.path.slice(0, -1), turn: last };
  }

  /** Keeps answers that exist already, as versions of the turn after `before`. */
  keepVersions(before, question, files, answers) {
    if (this.running) return;
    const place = before ? this.path.indexOf(before) + 1 : 0;
    for (const answer of answers) added(this.chat, before, { question, files, answer });
    if (byId("question").value.trim() === question) byId("question").value = "";
    this.showFrom(place);
    this.keep();
  }

  /** Sends a question. Returns false where an answer is still coming. answer: its beginning, where it is continued. given: contents of
   * new files. */
  send(question, files = [], answer = emptyAnswer(), given = []) {
    if (this.running) return false;
    for (const { id, content } of given) this.contents.held.set(id, content);
    const earlier = [...this.path];
    const turn = added(this.chat, earlier.at(-1), { question, files, answer });
    const view = this.show(turn);
    this.changed();
    this.begin(earlier, turn, view);
    for (const { id, content } of given) this.contents.put(id, content);  // after the chat that names them: see sweep
    return true;
  }

  /** Continues an answer whose calls have their results. Returns false where another answer is coming. */
  sendResults(place) {
    if (this.running) return false;
    this.removeFrom(place + 1);
    return this.send("");
  }

  /** Continues a cut answer where it ends. */
  goOn(place) {
    if (this.running) return;
    this.removeFrom(place + 1);
    const turn = this.path[place];
    Object.assign(turn.answer, { notice: "", figures: "", failed: false, cut: false });
    this.begin(this.path.slice(0, place), turn, this.views[place].answer);
  }

  begin(earlier, turn, view) {
    this.follower.follow();
    this.running = new AbortController();
    this.busy(true);
    turn.answer.model = this.model;
    view.begin();
    this.keep();
    this.answer(this.chat, earlier, turn, view, this.running);
    this.models.wait((words) => view.waits(words));
  }

  /** Hides the turns from this place on. */
  removeFrom(place) {
    this.path.splice(place);
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
      if (this.left) return;  // the text that came before is kept
      const stopped = error.name === "AbortError";
      answer.failed = !stopped;
      answer.cut = stopped;
      answer.notice = stopped ? "You stopped this answer." : error.message;
    }
    view.end();
    const said = `${answer.model}: ${answer.text.slice(0, MOST_READ_ALOUD)} ${answer.notice}`;
    announce(answer.failed ? `Error: ${answer.notice}` : said);
    if (this.chat !== chat) {
      // another chat is shown by now
      if (this.history.load(chat.id)) this.history.save(chat);
      return;
    }
    this.running = null;
    this.keep();
    this.busy(false);
  }

  async ask(chat, earlier, turn, view, signal) {
    const { id, room, sees } = this.models,
      { settings, contents } = this;
    const model = { id, room, sees };
    const asked = { model, settings, contents, earlier, begin: chat.from, turn, signal };
    const { fitted, body } = await requestOf(asked);
    if (fitted.from !== chat.from) {
      chat.from = fitted.from;
      if (this.chat === chat) this.changed();
    }
    const end = await this.measured(turn.answer, (tokens) =>
      streamed(body, signal, turn.answer, (kind, data) =>
        kind === "tokens" ? tokens.push(...data) : this.heard(view, kind, data),
      ),
    );
    if (end.reason === "length") Object.assign(turn.answer, this.cut(fitted, end, room));
    else if (!turn.answer.text && !turn.answer.calls.length) turn.answer.notice = "The model ended without an answer.";
    byId("room").textContent = end.usage
      ? `${count(end.usage.total_tokens)} of ${count(room)} tokens of context used.`
      : "";
    return end;
  }

  /** Keeps the tokens of an answer together with those of its beginning, however it ends. run(tokens): fills the list. */
  async measured(answer, run) {
    const begun = answer.text,
      tokens = [],
      earlier = await this.contents.get(answer.key);
    try {
      return await run(tokens);
    } finally {
      const before = earlier ?? (begun ? [unmeasured(begun, 0)] : []);
      if (tokens.length || earlier) this.contents.put(answer.key, [...before, ...kept(tokens, answer.text, begun)]);
    }
  }

  heard(view, kind, data) {
    if (kind === "progress") view.reading(data);
    if (kind === "begun") view.writing(data);
    if (kind === "thought") view.thinks();
    if (kind === "text") view.thought(data);
    if (kind === "text" || kind === "thought") view.grow();
  }

  cut({ prompt, maxTokens }, { usage }, room) {
    const made = count(usage?.completion_tokens ?? maxTokens);
    const full = prompt + maxTokens >= room;
    const why = full ? `the context of ${count(room)} tokens is full` : "that is the limit in Settings";
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
