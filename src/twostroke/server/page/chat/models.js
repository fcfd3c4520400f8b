// The menu of models: the models of the server, how far each is loaded, and which one answers. The choice is kept in this browser.
import { PullForm } from "./pull.js";
import { announce } from "../announce.js";
import { getJson, postJson } from "../api.js";
import { read, write } from "../storage.js";
import { count, make, scaled } from "../text.js";

const KEY = "twostroke-model";
const LOOK_MS = 1000;
const TASKS = { embed: "makes vectors", rerank: "scores texts" }; // these write no answers
const byId = (id) => document.getElementById(id);
const query = (id) => `?model=${encodeURIComponent(id)}`;

/** The tokens that one request may have. */
const roomOf = ({ settings: { context, kv_tokens: tokens } }) => Math.min(context, tokens || Infinity);

/** The state of a model in words; "" where the server has one model, which is always loaded. */
export function stateOf({ status }) {
  if (!status) return "";
  const share = status.progress ? ` ${Math.round(100 * status.progress)}%` : "";
  return `${status.value}${share}${status.reason ? `: ${status.reason}` : ""}`;
}

export class Models {
  /** changed(about): called when another model answers from now on. */
  constructor(about, changed) {
    Object.assign(this, { about, changed });
    this.take({ id: about.model, about, room: roomOf(about), sees: false });
    this.list = [];
    this.rows = new Map();
    this.dialog = byId("models");
    this.opener = byId("models-open");
    this.note = byId("models-note");
    this.pull = new PullForm(() => this.look());
    this.opener.addEventListener("click", () => {
      this.dialog.showModal();
      this.look();
    });
  }

  /** Reads the list, and takes the model that was chosen the last time. */
  async begin() {
    await this.look();
    const kept = read(KEY);
    const wanted = this.list.find(({ id, task }) => id === kept && !TASKS[task]);
    if (wanted && wanted.id !== this.id) await this.choose(wanted.id);
    else this.take(await this.facts(this.id));
  }

  get chosen() {
    return this.list.find(({ id }) => id === this.id);
  }

  /** Waits until the chosen model is loaded. waits(words): whether somebody still waits for it. */
  wait(waits) {
    if (!this.chosen?.status) return;
    const words = (model) => (model.status.value === "unloaded" ? "is loaded first" : stateOf(model));
    this.waits = (model) => Boolean(model) && model.status.value !== "loaded" && waits(`${model.id} ${words(model)}`);
    this.timer = setTimeout(() => this.look(), LOOK_MS / 2);
  }

  /** Reads the state repeatedly until nothing loads or leaves and the menu is closed. */
  async look() {
    clearTimeout(this.timer);
    try {
      const { data, pulls } = await getJson("/v1/models");
      this.list = data;
      this.pulls = Boolean(pulls);
      if (this.dialog.open) this.pull.show(this.pulls);
      this.note.textContent = "";
    } catch (error) {
      this.note.textContent = error.message;
    }
    this.draw();
    const moves = this.list.some(({ status }) => ["loading", "draining"].includes(status?.value));
    const waits = this.waits?.(this.chosen) ?? false;
    if (moves || waits || this.dialog.open) this.timer = setTimeout(() => this.look(), LOOK_MS);
  }

  /** The models that write answers. */
  get answering() {
    return this.list.filter(({ task }) => !TASKS[task]).map(({ id }) => id);
  }

  /** The facts of a model: {id, about, room, sees}. room: the tokens of its context. */
  async facts(id) {
    const about = id === this.about.model ? this.about : await getJson(`/v1/engine/about${query(id)}`);
    const props = await getJson(`/props${query(id)}`).catch(() => null);  // only newer servers report it
    return { id, about: { ...about, model: id }, room: roomOf(about), sees: Boolean(props?.modalities.vision) };
  }

  async choose(id) {
    try {
      this.take(await this.facts(id));
    } catch (error) {
      this.note.textContent = error.message;
      return;
    }
    write(KEY, id);
    this.draw();
    this.changed(this.about);
  }

  take({ id, about, room, sees }) {
    Object.assign(this, { id, about, room, sees });
  }

  draw() {
    const several = this.pulls || this.list.length > 1 || this.list.some(({ status }) => status);
    this.opener.hidden = !several;
    const state = this.chosen ? stateOf(this.chosen) : "";
    byId("models-name").textContent = this.id;
    byId("models-state").textContent = state && state !== "loaded" ? ` ${state.split(":")[0]}` : "";
    this.opener.dataset.state = this.chosen?.status?.value ?? "loaded";
    for (const each of this.list) this.row(each).draw(each, each.id === this.id);
    for (const [id, { item }] of this.rows) item.hidden = !this.list.some((each) => each.id === id);
  }

  /** Rows stay, so that an update does not take the focus away. */
  row(each) {
    if (!this.rows.has(each.id)) {
      const row = new Row(each.id, {
        choose: () => this.chooseInMenu(each.id),
        load: () => this.move("load", each.id),
        unload: () => this.move("unload", each.id),
      });
      this.rows.set(each.id, row);
      byId("models-list").append(row.item);
    }
    return this.rows.get(each.id);
  }

  async chooseInMenu(id) {
    await this.choose(id);
    if (this.id !== id) return;
    this.dialog.close();
    announce(`${id} answers from now on`);
  }

  /** The answer of the server comes when the model is loaded; until then the list shows how far it is. */
  async move(verb, id) {
    const asked = postJson(`/models/${verb}`, { model: id });
    const looked = setTimeout(() => this.look(), LOOK_MS / 4);
    try {
      await asked;
      announce(`${id}: ${verb}ed`);
      this.note.textContent = "";
    } catch (error) {
      this.note.textContent = error.message;
    }
    clearTimeout(looked);
    const said = this.note.textContent;
    await this.look();
    this.note.textContent ||= said;
  }
}

class Row {
  constructor(id, { choose, load, unload }) {
    this.words = make("span", { class: "figures" });
    const button = (label, onclick) =>
      make("button", { type: "button", "aria-label": `${label}: ${id}`, onclick, hidden: "" }, label);
    this.open = make(
      "button",
      { type: "button", class: "open", onclick: choose },
      make("span", { class: "title" }, id),
      this.words,
    );
    this.load = button("Load", load);
    this.unload = button("Unload", unload);
    this.item = make("li", {}, this.open, this.load, this.unload);
  }

  draw(each, isChosen) {
    const value = each.status?.value;
    const facts = [
      stateOf(each),
      TASKS[each.task],
      each.size && `${scaled(each.size, "B")} of memory`,
      each.max_model_len && `${count(each.max_model_len)} tokens of context`,
      each.parent && `adapter of ${each.parent}`,
    ];
    this.words.textContent = facts.filter(Boolean).join(" · ");
    this.open.setAttribute("aria-pressed", String(isChosen));
    this.open.disabled = Boolean(TASKS[each.task]);
    this.item.dataset.state = value ?? "loaded";
    this.load.hidden = !["unloaded", "failed"].includes(value) || Boolean(each.parent);
    this.unload.hidden = value !== "loaded" || Boolean(each.parent);
  }
}
