// The list of kept chats: open one, delete one, delete all.
import { announce } from "../announce.js";
import { titleOf } from "./history.js";
import { make } from "../text.js";

const DATES = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

export class Chats {
  /** open(id): shows that chat. gone(id): it was deleted. */
  constructor(history, open, gone) {
    Object.assign(this, { history, open, gone });
    this.dialog = document.getElementById("chats");
    this.list = document.getElementById("chats-list");
    this.clear = document.getElementById("chats-clear");
    document.getElementById("chats-open").addEventListener("click", () => {
      this.draw();
      this.dialog.showModal();
    });
    this.clear.addEventListener("click", () => this.deleteAll());
  }

  draw() {
    const chats = this.history.all();
    this.asked = false;
    this.clear.textContent = "Delete all";
    this.clear.disabled = !chats.length;
    this.list.replaceChildren(...chats.map((chat) => this.row(chat)));
    if (!chats.length) this.list.append(make("li", { class: "figures" }, "No chat yet."));
  }

  row(chat) {
    const title = titleOf(chat),
      many = chat.turns.length;
    const open = () => {
      this.dialog.close();
      this.open(chat.id);
    };
    return make(
      "li",
      {},
      make(
        "button",
        { type: "button", class: "open", onclick: open },
        make("span", { class: "title" }, title),
        make(
          "span",
          { class: "figures" },
          `${DATES.format(chat.at)} · ${many} ${many === 1 ? "question" : "questions"}`,
        ),
      ),
      make(
        "button",
        { type: "button", class: "delete", "aria-label": `Delete: ${title}`, onclick: () => this.delete(chat.id) },
        "Delete",
      ),
    );
  }

  delete(id) {
    this.history.remove(id);
    this.gone(id);
    this.draw();
    announce("Deleted");
    (this.list.querySelector("button") ?? this.dialog.querySelector("button")).focus();
  }

  /** Asks once more: the button says so. */
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
}
