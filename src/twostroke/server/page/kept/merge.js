// Joins two copies of one chat. Turns are the same where their answers have the same key, and no turn is ever removed. So the additions of
// two browsers at the same time both stay, as branches.

const keyOf = (turn) => turn.answer.key;

/** Adds to a chat what another copy has; its own turns keep their places. Returns whether that changed something. */
export function absorb(chat, other) {
  const places = new Map(chat.turns.map((turn, place) => [keyOf(turn), place]));
  const own = chat.turns.length,
    newer = other.at > chat.at;
  let changed = false;
  for (const turn of other.turns) {
    const place = places.get(keyOf(turn));
    if (place === undefined) {
      const parent = turn.parent < 0 ? -1 : places.get(keyOf(other.turns[turn.parent]));
      places.set(keyOf(turn), chat.turns.length);
      chat.turns.push({ ...turn, parent, chosen: -1 });
      changed = true;
    } else if (isLater(turn.answer, chat.turns[place].answer, newer)) {
      Object.assign(chat.turns[place].answer, turn.answer);
      changed = true;
    }
  }
  const shown = (turn) => places.get(turn && keyOf(turn)) ?? -1;  // the turn that came after a turn that is new here
  for (const turn of other.turns) {
    const place = shown(turn);
    if (place >= own) chat.turns[place].chosen = shown(other.turns[turn.chosen]);
  }
  chat.turns.forEach((turn, place) => {
    const holder = turn.parent < 0 ? chat : chat.turns[turn.parent];
    if (place >= own && holder.chosen < 0) holder.chosen = place;
  });
  chat.title ||= other.title;
  chat.at = Math.max(chat.at, other.at);
  return changed;
}

/** Whether this copy of an answer is newer than one's own. An answer only grows, and results of calls come later. */
function isLater(answer, own, newer) {
  if (answer.text.length !== own.text.length) return answer.text.startsWith(own.text);
  return newer && JSON.stringify(answer) !== JSON.stringify(own);
}
