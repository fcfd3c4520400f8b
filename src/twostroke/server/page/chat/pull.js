// Fetching another model, on servers that allow it. The form shows the model's facts and whether it fits before anything is downloaded.
import { announce } from "../announce.js";
import { call, getJson, postJson } from "../api.js";
import { make, scaled } from "../text.js";

const LOOK_MS = 500;
const byId = (id) => document.getElementById(id);

/** Pairs [fact, words] about the files that the hub offers. */
function factsOf({ reference, files, bytes, missing_bytes: missing, license, gated, fit, refusal }) {
  const todo = missing ? `${scaled(missing, "B")} to download` : "all of it is here";
  const size = `${files.length === 1 ? files[0].name : `${files.length} files`}, ${scaled(bytes, "B")}; ${todo}`;
  return [
    ["Model", reference],
    ["Size", size],
    ["Licence", `${license ?? "not named"}${gated ? "; gated, and this server's user has access" : ""}`],
    ["Fits", refusal ?? fit.words ?? fit.why_unknown],
  ];
}

export class PullForm {
  /** came(): called when the list of models has a new one. */
  constructor(came) {
    this.came = came;
    this.form = byId("pull");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.look(byId("pull-name").value.trim());
    });
    byId("pull-begin").addEventListener("click", () => this.begin());
    byId("pull-stop").addEventListener("click", () => call("/models/pull", { method: "DELETE" }).catch(this.fails));
  }

  /** offered: whether this server fetches models. A download that is under way already is followed. */
  show(offered) {
    this.form.hidden = !offered;
    if (offered && !this.follows) this.follow();
  }

  say(words) {
    byId("pull-said").textContent = words;
  }

  fails = (error) => this.say(error.message);

  facts(pairs) {
    byId("pull-facts").replaceChildren(...pairs.flatMap(([what, words]) => [make("dt", {}, what), make("dd", {}, words)]));
  }

  async look(name) {
    if (!name) return;
    const begin = byId("pull-begin"),
      look = byId("pull-look");
    begin.hidden = true;
    this.facts([]);
    this.say("Asking the hub …");
    look.disabled = true;
    try {
      this.found = await getJson(`/models/fit?model=${encodeURIComponent(name)}`);
      this.facts(factsOf(this.found));
      this.say("");
      begin.hidden = false;
      begin.textContent = this.found.refusal ? "Download it all the same" : "Download";
    } catch (error) {
      this.fails(error);
    }
    look.disabled = false;
  }

  async begin() {
    byId("pull-begin").hidden = true;
    try {
      await postJson("/models", { model: this.found.model, anyway: Boolean(this.found.refusal) });
      await this.follow(true);
    } catch (error) {
      this.fails(error);
    }
  }

  /** Shows how far a download is until it ends. began: whether it was begun here, so that its end is reported however soon it comes. */
  async follow(began = false) {
    const bar = byId("pull-progress"),
      stop = byId("pull-stop");
    this.follows = true;
    for (let ran = began; ; ran = true) {
      const { pull } = await getJson("/models/pull").catch(() => ({ pull: null }));
      const runs = pull?.state === "running";
      bar.hidden = stop.hidden = !runs;
      if (!runs) {
        if (ran) this.ended(pull);
        break;
      }
      bar.max = pull.total || 1;
      bar.value = pull.done;
      const share = pull.total ? ` ${scaled(pull.done, "B")} of ${scaled(pull.total, "B")}` : "";
      this.say(`${pull.name}: ${pull.stage}${share}`);
      await new Promise((done) => setTimeout(done, LOOK_MS));
    }
    this.follows = false;
  }

  ended(pull) {
    const words = {
      finished: `${pull?.name} is here, and can be chosen above.`,
      stopped: "Stopped. What is here stays: the next download goes on from there.",
      failed: `It failed: ${pull?.why}`,
    };
    this.say(words[pull?.state] ?? "The server does not answer.");
    announce(byId("pull-said").textContent);
    this.facts([]);
    this.came();
  }
}
