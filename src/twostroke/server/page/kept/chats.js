// The list of kept chats: search them, open one, delete one or all, and carry them to and from files.
import { found } from "./search.js";
import { chatsIn, exported, keepAll } from "./transfer.js";
import { chosen, titleOf } from "./tree.js";
import { announce } from "../announce.js";
import { save } from "../download.js";
import { make } from "../text.js";

const DATES = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const SEARCH_MS = 120;
const byId = (id) => document.getElementById(id);

export class Chats {
  /** shown(): the chat on the page. open(id): shows another one. gone(id): called when it was deleted. */
  constructor(history, contents, { shown, open, gone }) {
    Object.assign(this, { history, contents, shown, open, gone });
    this.dialog = byId("chats");
    this.list = byId("chats-list");
    this.clear = byId("chats-clear");
    this.note = byId("chats-note");
    this.search = byId("chats-search");
    const file = byId("chats-file");
    byId("chats-open").addEventListener("click", () => this.show());
    this.search.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.draw(), SEARCH_MS);
    });
    this.clear.addEventListener("click", () => this.deleteAll());
    byId("chats-import").addEventListener("click", () => file.click());
    file.addEventListener("change", async () => {
      for (const each of file.files) await this.import(each);
      file.value = "";
    });
    byId("chats-export").addEventListener("click", () => this.export(this.history.all(), "twostroke-chats.json"));
    byId("chats-where").textContent = history.where;
    byId("chats-export-one").addEventListener("click", () => this.export([this.shown()], "twostroke-chat.json"));
  }

  show() {
    if (this.dialog.open) return;
    this.search.value = "";
    this.note.textContent = "";
    this.draw();
    this.dialog.showModal();
    if (!matchMedia("(pointer: coarse)").matches) this.search.focus();  // on a touch screen a keyboard would cover the list
    this.refresh();
  }

  /** Draws again what other browsers have changed. */
  async refresh() {
    const state = () => JSON.stringify(this.history.all().map(({ id, at }) => [id, at]));
    const before = state();
    await this.history.refresh();
    if (this.dialog.open && state() !== before) this.draw();
  }

  draw() {
    const chats = this.history.all(),
      words = this.search.value.trim();
    this.asked = false;
    this.clear.textContent = "Delete all";
    for (const id of ["chats-clear", "chats-export"]) byId(id).disabled = !chats.length;
    byId("chats-export-one").disabled = !this.shown().turns.length;
    const rows = chats.map((chat) => [chat, words ? found(chat, words) : {}]).filter(([, hit]) => hit);
    this.list.replaceChildren(...rows.map(([chat, hit]) => this.row(chat, hit)));
    if (!rows.length) this.list.append(make("li", { class: "figures" }, words ? "No chat has these words." : "No chat yet."));
  }

  row(chat, { turn, piece }) {
    const title = titleOf(chat),
      many = chat.turns.length;
    const open = () => {
      if (turn) this.lead(chat, turn);
      this.dialog.close();
      this.open(chat.id, turn ? chat.turns.indexOf(turn) : -1);
    };
    const words = piece
      ? [piece.before, make("mark", {}, piece.hit), piece.after]
      : [`${DATES.format(chat.at)} · ${many} ${many === 1 ? "question" : "questions"}`];
    return make(
      "li",
      {},
      make(
        "button",
        { type: "button", class: "open", onclick: open },
        make("span", { class: "title" }, title),
        make("span", { class: "figures" }, ...words),
      ),
      make(
        "button",
        { type: "button", class: "delete", "aria-label": `Delete: ${title}`, onclick: () => this.delete(chat.id) },
        "Delete",
      ),
    );
  }

  /** Chooses the branch to which a turn belongs. */
  lead(chat, turn) {
    for (let at = turn; at; at = chat.turns[at.parent]) chosen(chat, at);
    this.history.save(chat);
  }

  delete(id) {
    this.history.remove(id);
    this.gone(id);
    this.draw();
    announce("Deleted");
    (this.list.querySelector("button") ?? this.dialog.querySelector("button")).focus();
  }

  /** Asks once more, by the words of the button. */
  deleteAll() {
    if (!this.asked) {
      this.asked = true;
      this.clear.textContent = "Really delete all of them?";
      return;
    }
    for (const { id } of this.history.all()) this.gone(id);
    this.history.clear();
    this.draw();
    announce("All chats are deleted");
  }

  async export(chats, name) {
    save(name, await exported(chats, this.contents));
  }

  async import(file) {
    try {
      this.note.textContent = await keepAll(chatsIn(await file.text(), file.name), this.history, this.contents);
    } catch (error) {
      this.note.textContent = error.message;
    }
    this.draw();
  }
}
