"""Checks a format: it is accepted if it reads back what the model's own template writes, however the text is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from twostroke.text.talk.calling import Tools
from twostroke.text.talk.format import Format
from twostroke.text.talk.learn.probe import CHECKS, FIRST, SCHEMAS, TemplateProbe, TurnCase
from twostroke.text.talk.notations.json_text import loaded
from twostroke.text.talk.pieces import CallArguments, CallBegan, Piece, Said, Thought, joined
from twostroke.text.talk.reader import TurnReader

Same = Callable[[Format, str], bool]
"""A function that reads the text of a turn in small pieces, with this format. It returns whether the message is the
same as when the text is read as a whole."""


class Checked(Struct, frozen=True):
    """What the check of a format found. right: the number of cases that were read back. wrong: the turns that were not
    read back. refused: the number of cases that the template does not write."""

    right: int = 0
    wrong: tuple[str, ...] = ()
    refused: int = 0


class ReadTurn(Struct, frozen=True):
    """A turn of the assistant as a client gets it, after the model's text was read. calls: (name, the arguments' JSON
    text, id)."""

    content: str
    thought: str
    calls: tuple[tuple[str, str, str], ...]


def read_turn(form: Format, texts: Iterable[str], tools: Tools, prompt_end: str = "") -> ReadTurn:
    """Reads a model's turn, which arrives as these texts, and returns the message for the client."""
    reader = TurnReader(form, tools, prompt_end)
    pieces = [piece for text in texts for piece in reader.feed(text)]
    return message_of([*pieces, *reader.finish()])


def message_of(pieces: Iterable[Piece]) -> ReadTurn:
    """Joins the pieces that a TurnReader returned to one message."""
    content: list[str] = []
    thought: list[str] = []
    calls: list[tuple[str, str, str]] = []
    for piece in joined(pieces):
        if isinstance(piece, Said):
            content.append(piece.text)
        elif isinstance(piece, Thought):
            thought.append(piece.text)
        elif isinstance(piece, CallBegan):
            calls.append((piece.name, "", piece.call_id))
        elif isinstance(piece, CallArguments):
            name, arguments, call_id = calls[-1]
            calls[-1] = (name, arguments + piece.text, call_id)
    return ReadTurn("".join(content), "".join(thought), tuple(calls))


def fits(form: Format, probe: TemplateProbe, ends: Sequence[str], case: TurnCase = FIRST) -> bool | None:
    """Returns True where the format reads this case's turn back without a change; None where the template does not
    write it."""
    turn = probe.turn(case)
    if turn is None or not all(name in turn for name, _ in case.calls) or case.content not in turn:
        return None
    return _came_back(form, without_end(turn, ends), case)


def checked(form: Format, probe: TemplateProbe, ends: Sequence[str], same: Same) -> Checked:
    """Tests a format with the turns that the template writes for the test messages (CHECKS). A turn is right if the
    format reads the message back, and if `same` finds that cutting the text changes nothing. ends: tokens that end a
    turn."""
    right = refused = 0
    wrong: list[str] = []
    for case in CHECKS:
        found = fits(form, probe, ends, case)
        turn = without_end(probe.turn(case) or "", ends)
        if found is None:
            refused += 1
        elif found and same(form, turn):
            right += 1
        else:
            wrong.append(turn)
    return Checked(right, tuple(wrong), refused)


def without_end(turn: str, ends: Sequence[str]) -> str:
    """Returns the turn without the tokens that end it."""
    while True:
        bare = turn.rstrip()
        end = next((end for end in ends if end and bare.endswith(end)), None)
        if end is None:
            return turn
        turn = bare[: -len(end)]


def _came_back(form: Format, turn: str, case: TurnCase) -> bool:
    read = read_turn(form, [turn], Tools(SCHEMAS))
    calls = [(name, loaded(arguments)) for name, arguments, _ in read.calls]
    told = (read.content.strip(), read.thought)
    # Some formats treat a plan before a call as a thought.
    planned = bool(case.calls) and told == ("", case.content)
    return calls == list(case.calls) and (told == (case.content, case.thought) or planned)


def same_at_every_cut(form: Format, turn: str) -> bool:
    """Returns True where reading the turn gives the same message as a whole and in two parts, for each place at which
    it can be divided."""
    tools = Tools(SCHEMAS)
    whole = read_turn(form, [turn], tools)
    return all(read_turn(form, [turn[:cut], turn[cut:]], tools) == whole for cut in range(1, len(turn)))


def same_in_characters(form: Format, turn: str) -> bool:
    """Returns True where reading the turn gives the same message as a whole and one character at a time."""
    return read_turn(form, turn, Tools(SCHEMAS)) == read_turn(form, [turn], Tools(SCHEMAS))
