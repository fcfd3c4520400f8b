// The start: theme, facts of the engine, then chat and live view.
import { getJson } from "./api.js";
import { forgetColours } from "./canvas.js";
import { Chat } from "./chat/chat.js";
import { Models } from "./chat/models.js";
import { Live } from "./engine/live.js";
import { Recorder } from "./engine/record.js";
import { Store } from "./engine/store.js";
import { Contents } from "./kept/contents.js";
import { History } from "./kept/history.js";
import { SharedHistory } from "./kept/shared.js";
import { Shortcuts } from "./shortcuts.js";
import { read, write } from "./storage.js";
import { count } from "./text.js";

const AGAIN_MS = 2000;
const state = document.getElementById("state");

function say(words, good = false) {
  if (state.textContent === words) return;
  state.textContent = words;
  state.classList.toggle("good", good);
  state.classList.toggle("bad", !good);
}

function themes(redraw) {
  const choice = document.getElementById("theme");
  const apply = () => {
    document.documentElement.dataset.theme = choice.value;
    forgetColours();
    redraw();
  };
  const kept = read("twostroke-theme");
  choice.value = ["light", "dark"].includes(kept) ? kept : "";
  choice.addEventListener("change", () => {
    write("twostroke-theme", choice.value);
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}

/** On a narrow screen one part of the page is shown at a time. */
function views(redraw) {
  const buttons = [...document.querySelectorAll("#views button")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      document.body.dataset.view = button.dataset.view;
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
      redraw();
    });
  }
}

/** Panels for experts are folded at first. The browser keeps which are open. */
function panels(redraw) {
  const open = new Set((read("twostroke-panels") ?? "").split(" "));
  const all = [...document.querySelectorAll("#engine details")];
  for (const panel of all) {
    panel.open = open.has(panel.id);
    panel.addEventListener("toggle", () => {
      write(
        "twostroke-panels",
        all
          .filter((each) => each.open)
          .map((each) => each.id)
          .join(" "),
      );
      redraw();
    });
  }
}

async function facts() {
  for (;;) {
    try {
      return await getJson("/v1/engine/about");
    } catch (error) {
      say(`not connected: ${error.message}`);
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
}

let live = null;
const redraw = () => live?.draw();
themes(redraw);
views(redraw);
panels(redraw);
const several = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

/** The header's text about a model. */
function describe({ model: name, settings }) {
  const { weights, kv_format: kv, context, threads, replicas } = settings;
  const model = document.getElementById("model");
  const computing = replicas ? several(replicas, "replica") : several(threads, "thread");
  model.textContent = `${name} · ${weights} weights, ${kv} KV · ${count(context)} tokens of context · ${computing}`;
  model.title = model.textContent;
}

const about = await facts();
describe(about);
const store = new Store();
const models = new Models(about, (chosen) => {
  describe(chosen);
  chat.use(chosen);
  live.watch(chosen);
});
const contents = new Contents();
const history = about.chats ? new SharedHistory(contents) : new History();
await history.refresh();
const chat = new Chat(about, models, { history, contents });
new Shortcuts();
new Recorder(store, say);
live = new Live(store, about, say);
await models.begin();
document.documentElement.dataset.ready = "yes";
live.follow();
