// The start: theme, facts of the engine, then chat and live view.
import { getJson } from "/page/api.js";
import { forgetColours } from "/page/canvas.js";
import { Chat } from "/page/chat.js";
import { Live } from "/page/live.js";
import { Recorder } from "/page/record.js";
import { Store } from "/page/store.js";
import { count } from "/page/text.js";

const state = document.getElementById("state");

function say(words, good = false) {
  if (state.textContent === words) return;
  state.textContent = words;
  state.classList.toggle("bad", !good);
}

function themes(redraw) {
  const choice = document.getElementById("theme");
  const apply = () => {
    document.documentElement.dataset.theme = choice.value;
    forgetColours();
    redraw();
  };
  choice.value = localStorage.getItem("twostroke-theme") ?? "";
  choice.addEventListener("change", () => { localStorage.setItem("twostroke-theme", choice.value); apply(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}

async function facts() {
  for (;;) {
    try {
      return await getJson("/v1/engine/about");
    } catch (error) {
      say(`not connected: ${error.message}`);
      await new Promise((done) => setTimeout(done, 2000));
    }
  }
}

let live = null;
themes(() => live?.draw());
const about = await facts();
const { weights, kv_format: kv, context, threads } = about.settings;
document.getElementById("model").textContent =
  `${about.model} · ${weights} weights, ${kv} KV · ${count(context)} tokens of context · ${threads} threads`;
const store = new Store();
new Chat(about.model);
new Recorder(store, say);
live = new Live(store, about, say);
document.documentElement.dataset.ready = "yes";
live.follow();
