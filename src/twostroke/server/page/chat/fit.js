// Which turns fit the context, and how long the answer may be. The server's own tokenizer and template count the tokens.
import { answered, messagesOfCalls } from "./calls.js";
import { postJson } from "../api.js";
import { count } from "../text.js";

/** The messages of a request: the system prompt, the turns from `from` on that have an answer, and the asked turn. Where its answer is
 * continued, the beginning of the answer follows. content(turn): the question as the API takes it. */
export function messagesOf(system, turns, from, turn, content) {
  const asked = (each) => (each.question || each.files.length ? [{ role: "user", content: content(each) }] : []);
  const said = turns
    .slice(from)
    .filter(({ answer }) => answer.text || answer.calls.length)
    .flatMap((each) => [...asked(each), ...messagesOfAnswer(each.answer)]);
  const first = system ? [{ role: "system", content: system }] : [];
  const begun = turn.answer.text ? [{ role: "assistant", content: turn.answer.text }] : [];
  return [...first, ...said, ...asked(turn), ...begun];
}

/** Calls without results are left out, because the next question takes their place. */
function messagesOfAnswer({ text, calls }) {
  if (calls.length && answered(calls)) return messagesOfCalls(text, calls);
  return text ? [{ role: "assistant", content: text }] : [];
}

/** tokensFrom(from): tokens of a prompt with the turns from there on; last: with no turn but the question.
 *
 * -> {from, prompt, maxTokens}. The turns before `from` are dropped. Where turns must go, enough go for the prompt to
 * take half of the room: then the next answers find the same beginning in the prefix cache.
 */
export async function fit(tokensFrom, begin, last, room, most) {
  const forAnswer = Math.max(1, Math.min(most, Math.floor(room / 4)));
  let from = Math.min(begin, last),
    prompt = await tokensFrom(from);
  if (prompt + forAnswer > room && from < last) {
    let low = from + 1,
      high = last; // the first turn from which on the prompt takes at most half
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((await tokensFrom(middle)) <= room / 2) high = middle;
      else low = middle + 1;
    }
    from = low;
    prompt = await tokensFrom(from);
  }
  if (prompt >= room) {
    throw new Error(
      `This message is too long: the prompt has ${count(prompt)} tokens, and the context has room for ` +
        `${count(room)}, the answer included. Edit the message, and make it shorter.`,
    );
  }
  return { from, prompt, maxTokens: Math.min(most, room - prompt) };
}

/** The number of tokens in the prompt of a request with these fields. */
export async function promptTokens(fields, signal) {
  return (await (await postJson("/tokenize", fields, signal)).json()).count;
}
