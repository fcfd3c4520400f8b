// How attached files are shown. Images are painted on a canvas, so the page never loads a picture from another place.
import { make } from "../text.js";

const MOST_PIXELS = 480;

function bytesOf(dataUrl) {
  const [head, body] = dataUrl.split(",", 2);
  const bytes = Uint8Array.from(atob(body), (sign) => sign.charCodeAt(0));
  return new Blob([bytes], { type: head.slice("data:".length).split(";")[0] });
}

/** A canvas with the image; null where the browser cannot read it. */
export async function imageView(dataUrl, name) {
  try {
    const image = await createImageBitmap(bytesOf(dataUrl));
    const share = Math.min(1, MOST_PIXELS / Math.max(image.width, image.height));
    const [width, height] = [image.width, image.height].map((side) => Math.max(1, Math.round(side * share)));
    const canvas = make("canvas", { width, height, role: "img", "aria-label": `Image ${name}` });
    canvas.getContext("2d").drawImage(image, 0, 0, width, height);
    image.close();
    return canvas;
  } catch {
    return null;
  }
}

/** The files of a question: images at once, texts when they are unfolded. */
export function filesView(files, contents) {
  const list = make("ul", { class: "files", "aria-label": "Attached files" });
  for (const { id, name, kind } of files) {
    const item = make("li", {});
    list.append(item);
    if (kind === "image") showImage(item, contents.get(id), name);
    else item.append(foldedText(contents, id, name));
  }
  return list;
}

async function showImage(item, found, name) {
  const url = await found;
  item.append((url && (await imageView(url, name))) ?? make("span", { class: "figures" }, `${name} (not kept)`));
}

function foldedText(contents, id, name) {
  const text = make("pre", { tabindex: "0" });
  const fold = make("details", {}, make("summary", {}, name), text);
  fold.addEventListener("toggle", async () => {
    if (fold.open) text.textContent = (await contents.get(id)) ?? "This browser has not kept it.";
  });
  return fold;
}
