// Chats as a file, and files as chats. A file is read as a whole before anything is kept, and no kept chat is removed for it.
import { foreignChat } from "./foreign.js";
import { checked, MOST_CHATS } from "./history.js";
import { newId } from "./tree.js";

const FORMAT = "twostroke-chats",
  VERSION = 1;

/** The text of a file with these chats and the contents of their files. */
export async function exported(chats, contents) {
  const ids = chats.flatMap((chat) => chat.turns.flatMap(({ files }) => files.map(({ id }) => id)));
  const held = Object.fromEntries(await contents.all([...new Set(ids)]));
  return JSON.stringify({ format: FORMAT, version: VERSION, chats, contents: held }, null, 1);
}

function ownChat(item, held) {
  const chat = checked(item);
  if (!chat) return null;
  const contents = new Map();
  for (const { id, kind } of chat.turns.flatMap(({ files }) => files)) {
    const found = Object.hasOwn(held, id) ? held[id] : null;
    if (typeof found === "string" && (kind === "text" || found.startsWith("data:image/"))) contents.set(id, found);
  }
  return { chat, contents };
}

/** The items of a file: one chat, a list of them, or one list of messages. */
function itemsOf(value) {
  if (Array.isArray(value)) return value.some((each) => each?.role) ? [{ messages: value }] : value;
  return Array.isArray(value?.chats) ? value.chats : [value];
}

/** {found: [{chat, contents}], odd: how many entries are no chats}. Raises an Error with words for the reader where a file has no
 * chats. */
export function chatsIn(text, name) {
  let value = null;
  try {
    value = JSON.parse(text.replace(/^\uFEFF/, ""));
  } catch {
    throw new Error(`${name} is no JSON file: nothing was imported.`);
  }
  if (value?.format === FORMAT && value.version > VERSION)
    throw new Error(`${name} was written by a newer page: nothing was imported.`);
  const own = value?.format === FORMAT,
    held = value?.contents ?? {};
  const items = itemsOf(value);
  const found = items.map((each) => (own ? ownChat(each, held) : foreignChat(each))).filter(Boolean);
  if (found.length) return { found, odd: items.length - found.length };
  const known = "Exports of this page, of Open WebUI, ChatGPT and llama.cpp are read, and lists of messages.";
  throw new Error(`${name} holds no chats that this page knows: nothing was imported. ${known}`);
}

const several = (number) => `${number} ${number === 1 ? "chat" : "chats"}`;

/** Keeps these chats where there is room, the newest first. Returns a report in words. */
export async function keepAll({ found, odd }, history, contents) {
  const told = { added: 0, there: 0, full: 0 };
  for (const { chat, contents: own } of found.sort((a, b) => b.chat.at - a.chat.at)) {
    const whole = checked(chat);
    const same = (id) => history.has(id) && JSON.stringify(history.load(id)) === JSON.stringify({ ...whole, id });
    if (same(whole.id)) told.there += 1;
    else {
      if (!whole.id || history.has(whole.id)) whole.id = newId();
      if (!history.add(whole)) {
        told.full += 1;
        continue;
      }
      told.added += 1;
    }
    for (const [id, value] of own) if ((await contents.get(id)) === undefined) await contents.put(id, value);
  }
  const words = [told.added === 1 ? "1 chat is imported." : `${several(told.added)} are imported.`];
  if (told.there) words.push(`${several(told.there)} ${told.there === 1 ? "was" : "were"} here already.`);
  if (told.full) words.push(`There is no room for ${several(told.full)}: this browser keeps ${MOST_CHATS} chats of 2 million characters.`);
  if (odd) words.push(`${odd} ${odd === 1 ? "entry is no chat" : "entries are no chats"}.`);
  return words.join(" ");
}
