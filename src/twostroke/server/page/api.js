// Calls of the server's own API, with the key where it asks for one.
import { read, write } from "./storage.js";

/** The address of the server. A proxy may show it below a path of its own. */
const BASE = new URL("../", import.meta.url);
const KEPT = "twostroke-key";
let inMemory = null;  // for a browser that keeps nothing

const theKey = () => read(KEPT, true) ?? inMemory;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers() {
  const key = theKey();
  return key ? { authorization: `Bearer ${key}` } : {};
}

let asking = null;  // there is one dialog, because several calls may be refused at once

/** Asks for the key in a dialog. The key stays in this tab. */
function askKey() {
  asking ??= new Promise((done) => {
    const dialog = document.getElementById("key"),
      field = document.getElementById("key-text");
    dialog.addEventListener(
      "close",
      () => {
        inMemory = field.value;
        write(KEPT, inMemory, true);
        field.value = "";
        asking = null;
        done();
      },
      { once: true },
    );
    if (theKey()) document.getElementById("key-title").textContent = "That was not its key";
    dialog.showModal();
  });
  return asking;
}

async function reached(path, options) {
  try {
    return await fetch(new URL(path.slice(1), BASE), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer. Does it still run?");
  }
}

/** Like fetch, but raises Refused with the server's own words, and asks for a key when a call without one is refused. */
export async function call(path, options = {}) {
  for (;;) {
    const sent = theKey();
    const answer = await reached(path, { ...options, headers: { ...options.headers, ...headers() } });
    if (answer.ok) return answer;
    if (answer.status === 401) {
      if (theKey() === sent) await askKey();
      continue;
    }
    let message = `The server answered with status ${answer.status}.`;
    try {
      message = (await answer.json()).error.message;
    } catch {
      /** there is no JSON, so only the status is known */
    }
    throw new Refused(answer.status, message);
  }
}

export async function getJson(path) {
  return (await call(path)).json();
}

export function postJson(path, body, signal) {
  return call(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
}

function brokenOff(error) {
  if (error.name === "AbortError") throw error;
  throw new Refused(0, "The connection ended before the answer did.");
}

/** The data of server-sent events, parsed, until [DONE] or the end. */
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(brokenOff);
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        if (!block.startsWith("data: ")) continue;
        if (block === "data: [DONE]") return;
        yield JSON.parse(block.slice(6));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
