// Reads chats of other programs: exports of Open WebUI, ChatGPT and llama.cpp, and plain lists of messages. Each first becomes {id,
// title, at, shown, nodes}, where nodes are messages {id, parent, role, text, reasoning, files}.
import { emptyAnswer } from "./tree.js";

const isObject = (value) => Boolean(value) && typeof value === "object" && !Array.isArray(value);
const string = (value) => (typeof value === "string" ? value : "");
const MILLISECONDS_FROM = 1e11; // smaller times are seconds

/** The milliseconds of a time in seconds, in milliseconds, or as a date in words; 0 for none. */
function timeOf(value) {
  const found = typeof value === "string" ? Date.parse(value) : Number(value);
  if (!Number.isFinite(found)) return 0;
  return Math.round(found < MILLISECONDS_FROM ? found * 1000 : found);
}

const imageFile = (url, name) => ({ name: string(name) || "image", kind: "image", content: url });
const isImage = (url) => string(url).startsWith("data:image/");

/** Text and images of a message's content, which is a text or a list of parts. */
function readContent(content) {
  const parts = Array.isArray(content) ? content : [content];
  const words = parts.map((part) => string(part) || string(part?.text)).filter(Boolean);
  const urls = parts.map((part) => part?.image_url?.url ?? part?.image_url).filter(isImage);
  return { text: words.join("\n"), files: urls.map((url) => imageFile(url)) };
}

/** The files next to a message: Open WebUI's `files`, llama.cpp's `extra`. */
function filesNextTo(message) {
  const listed = [message.files, message.extra].filter(Array.isArray).flat().filter(isObject);
  return listed.flatMap((each) => {
    const url = each.base64Url ?? each.url;
    if (isImage(url)) return [imageFile(url, each.name)];
    const text = string(each.content);
    return text ? [{ name: string(each.name) || "file", kind: "text", content: text }] : [];
  });
}

function nodeOf(id, parent, message) {
  const { text, files } = readContent(message.content);
  return {
    id: String(id),
    parent: parent === null || parent === undefined ? null : String(parent),
    role: string(message.role),
    text,
    reasoning: string(message.reasoning_content ?? message.reasoningContent ?? message.thinking),
    model: string(message.model),
    files: [...files, ...filesNextTo(message)],
  };
}

function openWebUi(item) {
  const chat = isObject(item.chat) ? item.chat : item,
    found = chat.history?.messages;
  if (!isObject(found)) return null;
  const nodes = Object.entries(found)
    .filter(([, message]) => isObject(message))
    .map(([id, message]) => nodeOf(id, message.parentId, message));
  const { title, updated_at: at } = item;
  return { id: item.id, title: title ?? chat.title, at: at ?? chat.timestamp, shown: chat.history.currentId, nodes };
}

function chatGpt({ id, conversation_id: other, title, update_time: at, current_node: shown, mapping }) {
  if (!isObject(mapping)) return null;
  const nodes = Object.entries(mapping).map(([key, node]) => {
    const message = node?.message ?? {};
    return nodeOf(key, node?.parent, { role: message.author?.role, content: message.content?.parts ?? "" });
  });
  return { id: id ?? other, title, at, shown, nodes };
}

function llamaCpp({ conv, messages }) {
  if (!isObject(conv) || !Array.isArray(messages)) return null;
  const nodes = messages.filter(isObject).map((each) => nodeOf(each.id, each.parent, each));
  return { id: conv.id, title: conv.name, at: conv.lastModified, shown: conv.currNode, nodes };
}

function plain({ id, title, at, messages }) {
  if (!Array.isArray(messages) || !messages.some((each) => string(each?.role))) return null;
  const nodes = messages.filter(isObject).map((each, place) => nodeOf(place, place ? place - 1 : null, each));
  return { id, title, at, shown: nodes.length - 1, nodes };
}

const SAYS = ["user", "assistant"];
const says = (node) => SAYS.includes(node.role) && Boolean(node.text || node.files.length);

/** The messages after a node, without those that have nothing for a reader. */
function after(children, id, seen) {
  const found = [];
  for (const open = [...(children.get(id) ?? [])].reverse(); open.length;) {
    const node = open.pop();
    if (seen.has(node.id)) continue;
    seen.add(node.id);
    if (says(node)) found.push(node);
    else open.push(...[...(children.get(node.id) ?? [])].reverse());
  }
  return found;
}

/** The turns of a tree of messages, and the contents of their files by id. */
function turnsOf(chatId, nodes) {
  const known = new Set(nodes.map(({ id }) => id)),
    children = Map.groupBy(nodes, ({ parent }) => (known.has(parent) ? parent : null));
  const turns = [],
    places = new Map(),
    contents = new Map(),
    seen = new Set();
  const add = (question, answer, parent) => {
    const files = (question?.files ?? []).map(({ name, kind, content }, number) => {
      const id = `${chatId}:${question.id}:${number}`;
      contents.set(id, content);
      return { id, name, kind };
    });
    const key = `${chatId}:${answer?.id ?? question.id}`,
      { text = "", reasoning = "", model = "" } = answer ?? {};
    const made = { ...emptyAnswer(), key, text, reasoning, model };
    turns.push({ question: question?.text ?? "", files, answer: made, parent, chosen: -1 });
    for (const node of [question, answer]) if (node) places.set(node.id, turns.length - 1);
    return turns.length - 1;
  };
  const open = after(children, null, seen).map((node) => [node, -1]);
  while (open.length) {
    const [node, parent] = open.shift();
    if (node.role === "assistant") {
      const place = add(null, node, parent);
      open.push(...after(children, node.id, seen).map((next) => [next, place]));
      continue;
    }
    const next = after(children, node.id, seen),
      answers = next.filter(({ role }) => role === "assistant");
    const made = (answers.length ? answers : [null]).map((answer) => [answer, add(node, answer, parent)]);
    for (const [answer, place] of made)
      if (answer) open.push(...after(children, answer.id, seen).map((each) => [each, place]));
    for (const each of next) if (each.role === "user") open.push([each, made[0][1]]);
  }
  return { turns, places, contents };
}

/** {chat, contents} of a chat that another program wrote; null where the item is none. */
export function foreignChat(item) {
  if (!isObject(item)) return null;
  const found = openWebUi(item) ?? chatGpt(item) ?? llamaCpp(item) ?? plain(item);
  if (!found) return null;
  const title = string(found.title),
    at = timeOf(found.at);
  const id = `imported-${found.id ?? `${at}-${title}`}`;
  const { turns, places, contents } = turnsOf(id, found.nodes);
  if (!turns.length) return null;
  const chat = { id, at, from: 0, title, chosen: -1, turns };
  for (let place = places.get(String(found.shown)) ?? -1; place >= 0; place = turns[place].parent) {
    const { parent } = turns[place];
    (parent < 0 ? chat : turns[parent]).chosen = place;
  }
  return { chat, contents };
}
