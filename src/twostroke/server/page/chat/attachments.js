// Files for the next question: chosen, pasted or dropped. Texts go to every model, images to a model that sees images.
import { announce } from "../announce.js";
import { call, postJson } from "../api.js";
import { imageView } from "./picture.js";
import { newId } from "../kept/tree.js";
import { count, make } from "../text.js";

const LONG_PASTE = 2000; // a longer text becomes a file
const MOST_BYTES = 32 * 1024 * 1024;
const byId = (id) => document.getElementById(id);

const dataUrlOf = (file) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });

/** The text of a file; null where its bytes are no UTF-8. */
async function textOf(file) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

export class Attachments {
  /** models: knows which model answers, its room, and whether it sees images. */
  constructor(models) {
    this.models = models;
    this.files = []; // {id, name, kind, content, item}
    this.adding = 0;
    this.added = Promise.resolve();
    this.list = byId("attached");
    this.note = byId("attach-note");
    const chooser = byId("attach-file");
    byId("attach").addEventListener("click", () => chooser.click());
    chooser.addEventListener("change", async () => {
      await this.add([...chooser.files]);
      chooser.value = "";
    });
    byId("question").addEventListener("paste", (event) => this.pasted(event));
    const body = document.body,
      carries = (event) => event.dataTransfer?.types.includes("Files");
    body.addEventListener("dragover", (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      body.classList.add("drops");
    });
    for (const end of ["dragleave", "drop"]) body.addEventListener(end, () => body.classList.remove("drops"));
    body.addEventListener("drop", (event) => {
      if (!carries(event)) return;
      event.preventDefault();  // otherwise the browser leaves the page to open the file
      this.add([...event.dataTransfer.files]);
    });
  }

  pasted(event) {
    const files = [...event.clipboardData.files],
      text = event.clipboardData.getData("text/plain");
    if (!files.length && text.length <= LONG_PASTE) return;
    event.preventDefault();
    const number = this.files.filter(({ name }) => name.startsWith("Pasted text")).length + 1;
    this.add(files.length ? files : [new File([text], `Pasted text ${number}.txt`, { type: "text/plain" })]);
  }

  /** Attaches the files one after the other. For a file that cannot be attached, a message tells why. */
  add(files) {
    this.adding += 1;
    this.added = this.added.then(() => this.addNow(files));
    return this.added;
  }

  async addNow(files) {
    const refused = [];
    for (const file of files) {
      try {
        this.show(await this.read(file));
      } catch (error) {
        refused.push(error.message);
      }
    }
    this.adding -= 1;
    this.say(refused.join(" "));
    byId("question").focus();
  }

  say(words) {
    this.note.textContent = words;
  }

  async read(file) {
    const name = file.name || "file",
      isImage = file.type.startsWith("image/") && file.type !== "image/svg+xml";
    if (file.size > MOST_BYTES) throw new Error(`${name} is too large: files of at most 32 MB are taken.`);
    if (isImage && !this.models.sees)
      throw new Error(`${name} is not attached: ${this.models.id} reads no images. Choose a model that does.`);
    const isPdf = file.type === "application/pdf" || /\.pdf$/i.test(name);
    const content = isImage ? await dataUrlOf(file) : isPdf ? await this.textOfPdf(file, name) : await textOf(file);
    if (content === null) throw new Error(`${name} is not attached: it is neither a text nor an image.`);
    const view = isImage ? await imageView(content, name) : null;
    if (isImage && !view) throw new Error(`${name} is not attached: this browser cannot read it as an image.`);
    return { id: newId(), name, kind: isImage ? "image" : "text", content, view };
  }

  /** The text of a PDF file, which the server reads. */
  async textOfPdf(file, name) {
    if (!this.models.about.pdf)
      throw new Error(`${name} is not attached: this server reads no PDF files. Install pypdf next to it (pip install 'twostroke[pdf]'), or save the text as a file.`);
    try {
      const asked = { method: "POST", headers: { "content-type": "application/pdf" }, body: file };
      const { text, empty } = await (await call("/v1/texts", asked)).json();
      if (empty) announce(`${name}: ${empty} of its pages have no text`);
      return text;
    } catch (error) {
      throw new Error(`${name} is not attached: ${error.message}`);
    }
  }

  show({ view, ...file }) {
    const size = make("span", { class: "figures" });
    const remove = () => {
      this.files = this.files.filter(({ id }) => id !== file.id);
      item.remove();
      this.list.hidden = !this.files.length;
      byId("question").focus();
    };
    const item = make(
      "li",
      {},
      ...(view ? [view] : []),
      make("span", { class: "name" }, file.name),
      size,
      make("button", { type: "button", class: "quiet", "aria-label": `Remove ${file.name}`, onclick: remove }, "×"),
    );
    this.list.append(item);
    this.list.hidden = false;
    this.files.push({ ...file, item });
    if (file.kind === "text") this.measure(file, size);
    announce(`${file.name} is attached`);
  }

  /** Shows how many tokens a text takes, next to its name. */
  async measure({ content }, place) {
    try {
      const asked = { model: this.models.id, prompt: content, add_special_tokens: false };
      const { count: tokens } = await (await postJson("/tokenize", asked)).json();
      const over = tokens >= this.models.room;
      place.textContent = `${count(tokens)} tokens${over ? ", more than the context" : ""}`;
      place.classList.toggle("over", over);
    } catch {
      place.textContent = `${count(content.length)} characters`;
    }
  }

  /** Whether there is a file, or one that is still being read. */
  get some() {
    return this.files.length + this.adding > 0;
  }

  /** The files, which leave this place. null where the model cannot take them; then a message tells it. */
  async take() {
    await this.added;
    const image = this.files.find(({ kind }) => kind === "image");
    if (image && !this.models.sees) {
      this.say(`${this.models.id} reads no images: remove ${image.name}, or choose a model that sees.`);
      return null;
    }
    const taken = this.files.map(({ id, name, kind, content }) => ({ id, name, kind, content }));
    for (const { item } of this.files) item.remove();
    this.files = [];
    this.list.hidden = true;
    this.say("");
    return taken;
  }
}
