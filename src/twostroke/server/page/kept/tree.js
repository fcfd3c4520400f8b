// A chat is a tree. A turn is a question with its answer, and each turn names the one before it. An edited question and another answer are
// turns next to the first one. Each place remembers which of its turns is shown, and nothing is removed.

export const emptyAnswer = () => ({
  text: "",
  reasoning: "",
  figures: "",
  notice: "",
  failed: false,
  cut: false,
  id: "",
  key: newId(),
  model: "",
  calls: [],
});

export const newId = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random().toString(36).slice(2)}`;

export const newChat = () => ({ id: newId(), at: 0, from: 0, title: "", chosen: -1, turns: [] });

/** The object that remembers which turn follows: a turn, or the chat for the first turn. */
const holder = (chat, parent) => (parent < 0 ? chat : chat.turns[parent]);

/** The turns that are shown, in order. */
export function pathOf(chat) {
  const path = [];
  for (let turn = chat.turns[chat.chosen]; turn; turn = chat.turns[turn.chosen]) path.push(turn);
  return path;
}

/** Adds a turn after `before` (null: at the beginning), which is shown from now on. */
export function added(chat, before, { question, files = [], answer = emptyAnswer() }) {
  const parent = before ? chat.turns.indexOf(before) : -1;
  const turn = { question, files, answer, parent, chosen: -1 };
  chat.turns.push(turn);
  holder(chat, parent).chosen = chat.turns.length - 1;
  return turn;
}

/** Shows this turn in its place, with the turns that were shown after it the last time. */
export function chosen(chat, turn) {
  holder(chat, turn.parent).chosen = chat.turns.indexOf(turn);
}

const asked = ({ question, files }) => JSON.stringify([question, files.map(({ id }) => id)]);

/** The turns in the same place: {questions: one for each question, answers: those with the question of this turn}. */
export function versionsOf(chat, turn) {
  const here = chat.turns.filter(({ parent }) => parent === turn.parent);
  const answers = here.filter((each) => asked(each) === asked(turn));
  const questions = new Map(here.map((each) => [asked(each), each])); // the latest answer of each
  questions.set(asked(turn), turn);
  return { questions: [...questions.values()], answers };
}

export function titleOf(chat) {
  const first = (chat.title || chat.turns[0]?.question || chat.turns[0]?.files[0]?.name || "").replace(/\s+/g, " ").trim();
  return first.length > 60 ? `${first.slice(0, 59)}…` : first || "New chat";
}
