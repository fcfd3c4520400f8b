// Chats that outlive the page: one entry of localStorage each, so that two tabs do not overwrite one another's. Bounded.
import { keys, read, readJson, remove, write } from "../storage.js";

const PREFIX = "twostroke-chat:";
export const MOST_CHATS = 50,
  MOST_CHARACTERS = 2_000_000;

const string = (value) => (typeof value === "string" ? value : "");

const calls = (value) =>
  (Array.isArray(value) ? value : []).filter(Boolean).map((call) => ({
    id: string(call.id),
    name: string(call.name),
    arguments: string(call.arguments),
    result: typeof call.result === "string" ? call.result : null,
  }));

/** A chat as it was kept, or null where it is damaged. */
function checked(found) {
  if (!found || typeof found !== "object" || !Array.isArray(found.turns)) return null;
  const turns = found.turns
    .filter((turn) => turn && typeof turn.question === "string" && turn.answer)
    .map((turn) => ({
      question: turn.question,
      answer: {
        text: string(turn.answer.text),
        reasoning: string(turn.answer.reasoning),
        figures: string(turn.answer.figures),
        notice: string(turn.answer.notice),
        failed: Boolean(turn.answer.failed),
        cut: Boolean(turn.answer.cut),
        id: string(turn.answer.id),
        calls: calls(turn.answer.calls),
      },
    }));
  return turns.length
    ? { id: string(found.id), at: Number(found.at) || 0, from: Number(found.from) || 0, turns }
    : null;
}

export function titleOf(chat) {
  const first = chat.turns[0]?.question.replace(/\s+/g, " ").trim() ?? "";
  return first.length > 60 ? `${first.slice(0, 59)}…` : first || "New chat";
}

export class History {
  /** The newest first. */
  all() {
    const found = keys(PREFIX).map((key) => this.load(key.slice(PREFIX.length)));
    return found.filter(Boolean).sort((a, b) => b.at - a.at);
  }

  load(id) {
    const chat = checked(readJson(PREFIX + id));
    return chat && { ...chat, id };
  }

  /** The oldest go where there are too many, or where they are too long together. False where it could not be kept. */
  save(chat) {
    const text = JSON.stringify(chat);
    if (text.length > MOST_CHARACTERS) return false; // all others would go for it
    const others = this.all().filter((each) => each.id !== chat.id);
    const sizes = others.map((each) => read(PREFIX + each.id)?.length ?? 0);
    let total = text.length + sizes.reduce((sum, size) => sum + size, 0);
    while (others.length && (others.length >= MOST_CHATS || total > MOST_CHARACTERS)) {
      total -= sizes.pop();
      this.remove(others.pop().id);
    }
    while (!write(PREFIX + chat.id, text)) {
      // the browser's own bound
      if (!others.length) return false;
      this.remove(others.pop().id);
    }
    return true;
  }

  remove(id) {
    remove(PREFIX + id);
  }

  clear() {
    for (const key of keys(PREFIX)) remove(key);
  }
}
