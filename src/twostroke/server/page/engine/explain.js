// "Explain" for one request, in a dialog with columns: where its time went, and what would help.
import { Refused, getJson } from "../api.js";
import { copyButton } from "../copy.js";
import { inline } from "../inline.js";
import { partsBar, partsOf } from "./parts.js";
import { count, duration, make } from "../text.js";

export async function explain(id) {
  const dialog = document.getElementById("explain"),
    body = document.getElementById("explain-body");
  body.replaceChildren(make("p", {}, "…"));
  if (!dialog.open) dialog.showModal();
  try {
    const found = await getJson(`/v1/requests/${encodeURIComponent(id)}/explain`);
    body.replaceChildren(...found.completions.map(completion));
  } catch (error) {
    const unknown = error instanceof Refused && error.status === 404;
    body.replaceChildren(
      make(
        "p",
        {},
        unknown
          ? "The server has no account of this request. Either it still runs: then ask again when it has ended. " +
              "Or it is too old, or the server was started anew: only the latest requests are kept."
          : error.message,
      ),
    );
  }
}

function completion(each) {
  const parts = partsOf(each.parts_s);
  const bar = make("div", {
    class: "parts",
    role: "img",
    "aria-label": "Where its time went: the table below says it",
  });
  partsBar(bar, parts);
  const keys = parts.map(({ name, colour, seconds }) =>
    make("span", { class: `key ${colour}` }, `${name} ${duration(seconds)}`),
  );
  return make(
    "article",
    {},
    make(
      "p",
      { class: "verdict" },
      make("strong", {}, `${each.verdict[0].toUpperCase()}${each.verdict.slice(1)}. `),
      each.summary,
    ),
    bar,
    make("p", { class: "keys" }, ...keys),
    facts(each),
    causes(each),
    ...advice(each),
    make("p", { class: "figures" }, "Figures of the cost model: ", inline(`${each.source}.`)),
    make(
      "p",
      { class: "ends" },
      make("span", { class: "figures id" }, each.request_id),
      copyButton(() => each.text, "Copy as text"),
    ),
  );
}

function facts(each) {
  const cached = each.num_cached_tokens ? ` (${count(each.num_cached_tokens)} of them cached)` : "";
  const told = {
    "in all": duration(each.e2e_s),
    "first token after": duration(each.ttft_s),
    "each next token": duration(each.mean_itl_s),
    prompt: `${count(each.num_prompt_tokens)} tokens${cached}`,
    answer: `${count(each.num_output_tokens)} tokens`,
  };
  return make(
    "dl",
    { class: "facts" },
    ...Object.entries(told).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
  );
}

function table(title, heads, rows) {
  // Roles are written out, because rows become grids on a narrow screen and would lose the table's meaning.
  const head = make(
    "tr",
    { role: "row" },
    ...heads.map(([name, kind]) => make("th", { scope: "col", role: "columnheader", class: kind }, name)),
  );
  const body = rows.map((row) =>
    make(
      "tr",
      { role: "row" },
      ...row.map((cell, place) => make("td", { role: "cell", class: heads[place][1] }, cell)),
    ),
  );
  return make(
    "table",
    { class: "explained", role: "table" },
    make("caption", {}, title),
    make("thead", { role: "rowgroup" }, head),
    make("tbody", { role: "rowgroup" }, ...body),
  );
}

function causes(each) {
  const rows = each.causes.map((cause) => [
    duration(cause.seconds),
    each.e2e_s ? `${Math.round((100 * cause.seconds) / each.e2e_s)}%` : "–",
    cause.kind,
    cause.text,
  ]);
  return table(
    "Where the time went",
    [
      ["time", "number"],
      ["share", "number"],
      ["cause", "word"],
      ["in detail", "wide"],
    ],
    rows,
  );
}

function advice(each) {
  if (!each.advice.length) return [];
  const rows = each.advice.map(({ text, saves_s: saves }) => [saves ? duration(saves) : "nothing", text]);
  return [
    table(
      "What would help",
      [
        ["saves", "number"],
        ["how", "wide"],
      ],
      rows,
    ),
  ];
}
