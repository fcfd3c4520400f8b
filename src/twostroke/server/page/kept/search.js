// Finds words in kept chats: in titles, questions and answers, also those of hidden branches.

const AROUND = 40;

/** The text in one line and in lower case. */
const plain = (text) => text.replace(/\s/g, " ").toLowerCase();

/** A part of the text around the first of the words: {before, hit, after}; null where it is not there. */
function piece(text, words) {
  const small = plain(text),
    at = small.indexOf(words);
  if (at < 0) return null;
  if (small.length !== text.length) return { before: "", hit: "", after: text.slice(0, 2 * AROUND) };  // lower case has changed the places
  const from = Math.max(0, at - AROUND),
    end = at + words.length;
  return {
    before: `${from ? "…" : ""}${text.slice(from, at)}`,
    hit: text.slice(at, end),
    after: `${text.slice(end, end + AROUND)}${end + AROUND < text.length ? "…" : ""}`,
  };
}

/** {turn, piece} for the place of the words in a chat; the turn is null for its title. null where they are nowhere in it. */
export function found(chat, asked) {
  const words = plain(asked).trim();
  const inTitle = piece(chat.title, words);
  if (inTitle) return { turn: null, piece: inTitle };
  for (const turn of chat.turns)
    for (const text of [turn.question, turn.answer.text, ...turn.files.map(({ name }) => name)]) {
      const hit = piece(text, words);
      if (hit) return { turn, piece: hit };
    }
  return null;
}
