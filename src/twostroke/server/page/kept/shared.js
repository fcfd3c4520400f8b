// Chats that the server keeps. The server has each as the file that an export of it would be, and this page has all of them. A chat that
// has not reached the server stays in this browser until it has. Changes of other browsers are joined with those of this one.
import { History } from "./history.js";
import { absorb } from "./merge.js";
import { chatsIn, exported } from "./transfer.js";
import { newId } from "./tree.js";
import { call, getJson } from "../api.js";

const PATH = "/v1/chats";
const UNSENT = "twostroke-unsent:";
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/;
const AGAIN = 3; // how often a chat is joined with a newer one of the server before the next save

export class SharedHistory {
  where = "Chats are kept on this server, for every browser that comes with the same key. Older ones that only this browser has are listed too.";

  /** contents: the contents of files. */
  constructor(contents) {
    this.contents = contents;
    this.left = () => {}; // called when a chat was removed
    this.changed = () => {}; // called with a chat that another browser has changed
    this.local = new History();  // the chats that were here before the server kept chats
    this.unsent = new History(UNSENT);
    this.held = new Map();  // id -> {chat, name, revision, saves, sent}; revision is null where the server has none
    this.sending = new Map();  // id -> the promise of what is sent last
    this.leaving = new Set(); // names of chats that are being deleted
    for (const chat of this.unsent.all()) this.hold(chat).saves += 1;
    addEventListener("visibilitychange", () => document.hidden || this.refresh());
    addEventListener("focus", () => this.refresh());
  }

  hold(chat, name = NAME.test(chat.id) ? chat.id : newId(), revision = null) {
    const made = { chat, name, revision, saves: 0, sent: 0 };
    this.held.set(chat.id, made);
    return made;
  }

  /** Reports in words what went wrong; "" where all is well again. */
  tell(words) {
    document.getElementById("kept-note").textContent = words;
  }

  /** Reads what the server has, and sends what it lacks. */
  refresh() {
    this.reading ??= this.read()
      .then(() => this.tell(""), (error) => this.tell(`The chats of the server cannot be read: ${error.message}`))
      .finally(() => {
        this.reading = null;
      });
    return this.reading;
  }

  async read() {
    const { data } = await getJson(PATH);
    const there = new Map(data.map(({ id, revision }) => [id, revision]));
    const names = new Map([...this.held.values()].map((each) => [each.name, each]));
    for (const [name, revision] of there)
      if (names.get(name)?.revision !== revision && !this.leaving.has(name)) await this.take(name);
    for (const [id, each] of this.held) {
      if (each.saves > each.sent) this.send(id);
      else if (each.revision && !there.has(each.name)) this.held.delete(id); // another browser has deleted it
    }
  }

  /** Joins a chat of the server with this page's copy. An item that is no chat, or was deleted in the meantime, is skipped. */
  async take(name) {
    const answer = await call(`${PATH}/${name}`).catch((error) => {
      if ([404, 503].includes(error.status)) return null;  // 503: this one cannot be read
      throw error;
    });
    const revision = answer?.headers.get("etag").slice(1, -1),
      found = answer && read(await answer.text());
    if (!found) return null;
    const { chat, contents } = found;
    for (const [id, value] of contents) if ((await this.contents.get(id)) === undefined) await this.contents.put(id, value);
    const own = this.held.get(chat.id);
    if (!own) return this.hold(chat, name, revision);
    if (own.revision && own.name !== name) return own;  // another copy of it was kept under another name
    Object.assign(own, { name, revision });
    if (absorb(own.chat, chat)) this.changed(own.chat);
    return own;
  }

  /** All chats, the newest first. */
  all() {
    const held = [...this.held.values()].map(({ chat }) => chat),
      local = this.local.all().filter(({ id }) => !this.held.has(id));
    return [...held, ...local].sort((a, b) => b.at - a.at);
  }

  load(id) {
    return this.held.get(id)?.chat ?? this.local.load(id);
  }

  has(id) {
    return this.held.has(id) || this.local.has(id);
  }

  /** Saves in this browser at once, and on the server soon. */
  save(chat) {
    const own = this.held.get(chat.id) ?? this.hold(chat);
    own.chat = chat;
    own.saves += 1;
    this.unsent.save(chat);
    this.send(chat.id);
    return true;  // the server's answer is reported later
  }

  add(chat) {
    return this.save(chat);
  }

  remove(id) {
    const own = this.held.get(id);
    for (const each of [this.local, this.unsent]) each.remove(id);
    this.held.delete(id);
    if (own) {
      this.leaving.add(own.name);
      this.after(id, () => this.drop(own));
    }
    this.left();
  }

  clear() {
    for (const { id } of this.all()) this.remove(id);
  }

  /** Sends the latest state of a chat, after what is being sent. */
  send(id) {
    this.after(id, () => this.sendNow(id));
  }

  after(id, act) {
    const last = (this.sending.get(id) ?? Promise.resolve()).then(act).catch((error) => this.tell(error.message));
    this.sending.set(id, last);
  }

  async sendNow(id) {
    const own = this.held.get(id);
    if (!own || own.saves === own.sent) return; // an earlier call has sent it
    try {
      await this.put(own, AGAIN);
    } catch (error) {
      throw new Error(`This chat is in this browser alone until the server takes it: ${error.message}`);
    }
    if (own.saves !== own.sent) return;
    for (const each of [this.local, this.unsent]) each.remove(id);
    this.tell("");
  }

  async put(own, tries) {
    const { saves, revision } = own,
      expected = revision ? { "if-match": `"${revision}"` } : { "if-none-match": "*" };
    const headers = { "content-type": "application/json", ...expected };
    try {
      const body = await exported([own.chat], this.contents);
      const answer = await call(`${PATH}/${own.name}`, { method: "PUT", headers, body });
      own.revision = (await answer.json()).revision;
      own.sent = saves;
    } catch (error) {
      if (error.status !== 412 || !tries) throw error;
      if (!(await this.take(own.name))) own.revision = null; // it was deleted elsewhere, and goes on here
      await this.put(own, tries - 1);
    }
  }

  async drop({ name, revision }) {
    try {
      if (revision) await call(`${PATH}/${name}`, { method: "DELETE" });
    } catch (error) {
      if (error.status !== 404) throw new Error(`The server has not deleted this chat: ${error.message}`);
    } finally {
      this.leaving.delete(name);
    }
  }
}

/** {chat, contents} of a text that the server has kept; null where that is no chat. */
function read(text) {
  try {
    return chatsIn(text, "chat").found[0];
  } catch {
    return null;
  }
}
