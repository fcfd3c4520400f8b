// A button that copies. The clipboard is for secure addresses (https, this machine); elsewhere the old way is used.
import { announce } from "./announce.js";
import { make } from "./text.js";

const SHOWN_MS = 1500;

export function copyButton(text, label = "Copy") {
  const button = make("button", { type: "button", class: "copy" }, label);
  button.addEventListener("click", async () => {
    const done = (await copied(text(), button)) ? "Copied" : "Not copied";
    button.textContent = done;
    announce(done);
    setTimeout(() => {
      button.textContent = label;
    }, SHOWN_MS);
  });
  return button;
}

async function copied(text, near) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", { class: "unseen", readonly: "" });
    field.value = text;
    near.after(field);  // inside an open dialog only its own elements can be selected
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    near.focus();
    return done;
  }
}
