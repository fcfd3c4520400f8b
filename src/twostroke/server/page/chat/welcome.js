// The first screen: a description of the page, and three questions to begin with.
import { make } from "../text.js";

const SPARK = {
  title: "This is spark",
  text:
    "A language model of 5 million parameters that comes with Twostroke, so that there is something to talk to at once. " +
    "It knows about LLM inference and about Twostroke. On everything else it is wrong, fluently.",
  questions: ["What is prefill?", "Why is decode memory-bound?", "What is a KV cache?"],
  hint: "For a larger model: twostroke serve MODEL, with a folder or a name of the Hugging Face hub.",
};

const other = (model) => ({
  title: model,
  text: "This model runs on the machine that serves this page. What you write is sent there, and nowhere else.",
  questions: [
    "Explain in five short points how a language model writes an answer.",
    "Write a Python function that finds the longest word of a text.",
    "Give me three ideas for a rainy Sunday.",
  ],
  hint: "System prompt and sampling are in Settings.",
});

export function welcome(model, ask) {
  const byId = (id) => document.getElementById(id);
  const shown = model === "spark" ? SPARK : other(model);
  byId("welcome-title").textContent = shown.title;
  byId("welcome-text").textContent = shown.text;
  byId("welcome-hint").textContent = shown.hint;
  byId("questions").replaceChildren(
    ...shown.questions.map((text) =>
      make("li", {}, make("button", { type: "button", onclick: () => ask(text) }, text)),
    ),
  );
}
