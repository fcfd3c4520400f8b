// Chats that stay after the page is closed: one entry of localStorage each, so that two tabs do not overwrite one another's. Their number
// and size are bounded.
import { newId } from "./tree.js";
import { keys, read, readJson, remove, write } from "../storage.js";

const PREFIX = "twostroke-chat:";
export const MOST_CHATS = 50,
  MOST_CHARACTERS = 2_000_000;

const string = (value) => (typeof value === "string" ? value : "");
const list = (value) => (Array.isArray(value) ? value.filter(Boolean) : []);

const calls = (value) =>
  list(value).map((call) => ({
    id: string(call.id),
    name: string(call.name),
    arguments: string(call.arguments),
    result: typeof call.result === "string" ? call.result : null,
  }));

const files = (value) =>
  list(value)
    .filter(({ id }) => typeof id === "string" && id)
    .map(({ id, name, kind }) => ({ id, name: string(name) || "file", kind: kind === "image" ? "image" : "text" }));

const answerOf = (answer) => ({
  text: string(answer.text),
  reasoning: string(answer.reasoning),
  figures: string(answer.figures),
  notice: string(answer.notice),
  failed: Boolean(answer.failed),
  cut: Boolean(answer.cut),
  id: string(answer.id),
  key: string(answer.key) || newId(),
  model: string(answer.model),
  calls: calls(answer.calls),
});

/** A chat as it was kept, or null where it is damaged. In chats without branches no turn names a parent, and turns follow each other. */
export function checked(found) {
  if (!found || typeof found !== "object" || !Array.isArray(found.turns)) return null;
  const places = new Map(),  // place of a turn -> its place without the damaged ones
    turns = [];
  found.turns.forEach((turn, was) => {
    if (!turn || typeof turn.question !== "string" || !turn.answer) return;
    const parent = turn.parent === -1 ? -1 : (places.get(turn.parent ?? was - 1) ?? turns.length - 1);
    places.set(was, turns.length);
    turns.push({
      question: turn.question,
      files: files(turn.files),
      answer: answerOf(turn.answer),
      parent,
      chosen: turn.chosen ?? was + 1,
    });
  });
  const shown = (wanted, parent) => {
    const place = places.get(wanted) ?? -1;
    return turns[place]?.parent === parent ? place : turns.findLastIndex((each) => each.parent === parent);
  };
  turns.forEach((turn, place) => {
    turn.chosen = shown(turn.chosen, place);
  });
  if (!turns.length) return null;
  const { id, at, from, title } = found;
  return {
    id: string(id),
    at: Number(at) || 0,
    from: Number(from) || 0,
    title: string(title),
    chosen: shown(found.chosen ?? 0, -1),
    turns,
  };
}

export class History {
  where = `Chats are kept in this browser alone, the latest ${MOST_CHATS} of them.`;

  constructor(prefix = PREFIX) {
    this.prefix = prefix;
    this.left = () => {}; // called when a chat was removed
  }

  /** Does nothing, because nothing comes from elsewhere. */
  async refresh() {}

  /** All chats, the newest first. */
  all() {
    const found = keys(this.prefix).map((key) => this.load(key.slice(this.prefix.length)));
    return found.filter(Boolean).sort((a, b) => b.at - a.at);
  }

  load(id) {
    const chat = checked(readJson(this.prefix + id));
    return chat && { ...chat, id };
  }

  has(id) {
    return read(this.prefix + id) !== null;
  }

  /** Saves a chat. The oldest chats are removed where there are too many, or where they are too long together. Returns false where it
   * could not be kept. */
  save(chat) {
    const text = JSON.stringify(chat);
    if (text.length > MOST_CHARACTERS) return false;  // all others would be removed for it
    const others = this.all().filter((each) => each.id !== chat.id);
    const sizes = others.map((each) => read(this.prefix + each.id)?.length ?? 0);
    let total = text.length + sizes.reduce((sum, size) => sum + size, 0);
    while (others.length && (others.length >= MOST_CHATS || total > MOST_CHARACTERS)) {
      total -= sizes.pop();
      this.remove(others.pop().id);
    }
    while (!write(this.prefix + chat.id, text)) {
      // the browser's own limit
      if (!others.length) return false;
      this.remove(others.pop().id);
    }
    return true;
  }

  /** Keeps a chat where there is room for it, without removing another. Returns false where there is none. */
  add(chat) {
    const kept = keys(this.prefix),
      text = JSON.stringify(chat);
    const total = kept.reduce((sum, key) => sum + (read(key)?.length ?? 0), text.length);
    return kept.length < MOST_CHATS && total <= MOST_CHARACTERS && write(this.prefix + chat.id, text);
  }

  remove(id) {
    remove(this.prefix + id);
    this.left();
  }

  clear() {
    for (const key of keys(this.prefix)) remove(key);
    this.left();
  }
}
