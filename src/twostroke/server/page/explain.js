// "Explain" for one request, in a dialog.
import { Refused, getJson } from "/page/api.js";
import { duration, make } from "/page/text.js";

const COLOURS = {
  queue_s: "queued", own_prefill_s: "prefill", others_prefill_s: "shared", decode_s: "decode",
  preempted_s: "preempted", recompute_s: "cached", host_gap_s: "host", client_stall_s: "sampling",
};

export async function explain(id) {
  const dialog = document.getElementById("explain"), body = document.getElementById("explain-body");
  body.replaceChildren(make("p", {}, "…"));
  if (!dialog.open) dialog.showModal();
  try {
    const found = await getJson(`/v1/requests/${encodeURIComponent(id)}/explain`);
    body.replaceChildren(...found.completions.map(completion));
  } catch (error) {
    const words = error instanceof Refused && error.status === 404 ? "It still runs; ask again when it has ended." : error.message;
    body.replaceChildren(make("p", {}, words));
  }
}

function completion(each) {
  const parts = Object.entries(each.parts_s).filter(([, seconds]) => seconds > 0);
  const total = parts.reduce((sum, [, seconds]) => sum + seconds, 0);
  const bar = make("div", { class: "parts", role: "img", "aria-label": "where its time went, listed below" });
  for (const [name, seconds] of parts) {
    const piece = make("span", { title: `${name}: ${duration(seconds)}` });
    piece.style.width = `${(100 * seconds) / total}%`;
    piece.style.background = `var(--${COLOURS[name] ?? "host"})`;
    bar.append(piece);
  }
  const names = parts.map(([name, seconds]) => `${name.replace(/_s$/, "").replaceAll("_", " ")} ${duration(seconds)}`);
  return make("article", {}, bar, make("p", { class: "figures" }, names.join(" · ")), make("pre", {}, each.text));
}
