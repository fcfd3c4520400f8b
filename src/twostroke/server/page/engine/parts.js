// The parts of a completion's time: their names, their colours, and a bar of them.
import { duration, make } from "../text.js";

const PARTS = {
  queue_s: ["queue", "queued"],
  encode_s: ["encode", "shared"],
  own_prefill_s: ["prefill", "prefill"],
  others_prefill_s: ["others' prefill", "others"],
  decode_s: ["decode", "decode"],
  preempted_s: ["preempted", "preempted"],
  recompute_s: ["computed again", "cached"],
  host_gap_s: ["host gap", "host"],
  client_stall_s: ["slow reader", "sampling"],
  front_s: ["in the front", "queued"],
  transfer_s: ["transfer", "shared"],
  resume_s: ["resumed", "cached"],
  lost_s: ["lost replica", "preempted"],
};

/** {name, colour, seconds} of each part that took time. */
export function partsOf(seconds) {
  return Object.entries(seconds)
    .filter(([, spent]) => spent > 0)
    .map(([part, spent]) => {
      const [name, colour] = PARTS[part] ?? [part.replace(/_s$/, "").replaceAll("_", " "), "host"];
      return { name, colour, seconds: spent };
    });
}

export function partsBar(bar, parts) {
  const whole = parts.reduce((sum, { seconds }) => sum + seconds, 0);
  bar.replaceChildren(
    ...parts.map(({ name, colour, seconds }) => {
      const piece = make("span", { title: `${name}: ${duration(seconds)}` });
      piece.style.width = `${(100 * seconds) / whole}%`;
      piece.style.background = `var(--${colour})`;
      return piece;
    }),
  );
}
