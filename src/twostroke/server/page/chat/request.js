// The request of a turn: its messages, held within the context of the model that answers.
import { contentOf } from "./content.js";
import { fit, messagesOf, promptTokens } from "./fit.js";

/** model: {id, room, sees}. begin: the first turn that is sent. Returns {fitted, body}; see `fit`. Raises an Error with words for the
 * reader. */
export async function requestOf({ model, settings, contents, earlier, begin, turn, signal }) {
  const { system, tools, most, sampling } = settings;
  const files = [...earlier, turn].flatMap((each) => each.files.map(({ id }) => id));
  const held = await contents.all(files),
    content = (each) => contentOf(each, held, model.sees);
  const continued = turn.answer.text ? { continue_final_message: true } : {};
  const fields = (from) => ({
    model: model.id,
    messages: messagesOf(system, earlier, from, turn, content),
    ...(tools ? { tools } : {}),
    ...continued,
  });
  const tokensFrom = (from) => promptTokens(fields(from), signal);
  const fitted = await fit(tokensFrom, begin, earlier.length, model.room, most);
  return { fitted, body: { ...fields(fitted.from), max_tokens: fitted.maxTokens, ...sampling } };
}
