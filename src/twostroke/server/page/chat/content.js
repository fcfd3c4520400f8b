// A question with files, as the API takes it. Texts come before the question, and images are parts of the message.

/** A fence that no line of the text ends. */
function fence(text) {
  const longest = Math.max(2, ...(text.match(/^`{3,}/gm) ?? []).map((each) => each.length));
  return "`".repeat(longest + 1);
}

function written({ name }, text) {
  const mark = fence(text);
  return `${name}:\n${mark}\n${text}\n${mark}`;
}

const gone = ({ name }) => `[The file ${name} was here; this browser has not kept it.]`;
const unseen = ({ name }) => `[The image ${name} was here; this model reads no images.]`;

/** The content of the user's message. held: id -> contents of files. sees: whether the model takes images. */
export function contentOf({ question, files }, held, sees) {
  const texts = [],
    images = [];
  for (const file of files) {
    const found = held.get(file.id);
    if (found === undefined) texts.push(gone(file));
    else if (file.kind === "text") texts.push(written(file, found));
    else if (sees) images.push({ type: "image_url", image_url: { url: found } });
    else texts.push(unseen(file));
  }
  const text = [...texts, ...(question ? [question] : [])].join("\n\n");
  if (!images.length) return text;
  return text ? [...images, { type: "text", text }] : images;
}
