"""A format: how one family of models writes a turn. It is data; readers, grammars and renderers are made from it.

    Format("hermes", calls=(CallForm(ObjectNotation(), open="<tool_call>\\n", close="\\n</tool_call>"),))

Every text is exactly as the model writes it. A reader looks for it without the white space at its ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, structs

from twostroke.text.talk.ids import CallIds

if TYPE_CHECKING:
    from twostroke.text.talk.calling import Calling
    from twostroke.text.talk.hold.lark import Lark
    from twostroke.text.talk.stream import Reading, TextStream


class Notation(Protocol):
    """How one call is written, without the marks that all calls have in common."""

    @property
    def lead(self) -> str:
        """A text that a call begins with and that tells it from prose, "" for none."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The literal texts of a call."""

    def fits(self, stream: TextStream) -> Reading[bool]:
        """True where what comes next may be a call; nothing is taken."""

    def read(self, stream: TextStream, call: Calling) -> Reading[None]:
        """Read one call from its lead on; `call.name` comes before `call.argue`. Returns at the first thing that is no
        part of a call."""

    def write(self, name: str, arguments: Mapping[str, Any], call_id: str) -> str:
        """The call as the model writes it."""

    def rule(self, name: str, schema: Mapping[str, Any], lark: Lark) -> str:
        """The body of a grammar's rule for a call of this tool."""


class CallForm(Struct, frozen=True):
    """begin section ( open call close ) between (open call close) end.

    listed: square brackets stand around all calls, within the section.
    """

    notation: Notation
    open: str = ""
    close: str = ""
    between: str = ""
    begin: str = ""
    end: str = ""
    listed: bool = False

    @property
    def bare(self) -> bool:
        """True where no mark tells a call from an answer: it stands first in a text, and its name decides."""
        return not self.starts

    @property
    def starts(self) -> tuple[str, ...]:
        """The marks of which each may begin a call: a model forgets some of them at times."""
        marks = (self.begin.strip(), self.open.strip(), self.notation.lead)
        return tuple(mark for mark in marks if mark)


class ThoughtMarks(Struct, frozen=True):
    """The marks around a thought.

    prompts: other ends of a prompt after which the answer begins within a thought. anywhere: the marks count in the
    middle of an answer, too: they are no words that a text may be about. following: stands after a thought, before
    the next part of the turn.
    """

    opening: str
    closing: str
    prompts: tuple[str, ...] = ()
    anywhere: bool = False
    following: str = ""

    def opened_by(self, prompt_end: str) -> bool:
        """True where the prompt itself opened the thought, so that the answer starts within it."""
        bare = prompt_end.rstrip()
        return any(bare.endswith(end.rstrip()) for end in (self.opening, *self.prompts))

    def closed_by(self, prompt_end: str) -> bool:
        """True where the prompt itself ended the thought, so that the answer holds none."""
        return prompt_end.rstrip().endswith(self.closing.strip())


class Messages(Struct, frozen=True):
    """Several messages in one turn: start header body text end.

    start: how a message begins, the first one in the prompt. body: ends the header. ends: end a message. channel: the
    mark before a channel's name. thoughts: channels, or recipients, of thoughts. recipient: the text before a
    recipient's name, "" where the header is the recipient alone. prefix: of the names of tools. everyone: recipients
    that are the user. constrain: stands in the header of a call. inside: a call's text holds the marks of calls, too.
    """

    start: str
    body: str
    ends: tuple[str, ...]
    channel: str = ""
    thoughts: tuple[str, ...] = ()
    recipient: str = ""
    prefix: str = ""
    everyone: tuple[str, ...] = ()
    constrain: str = ""
    inside: bool = False


class ResultForm(Struct, frozen=True):
    """How the result of a call stands in a history. role: of the turn. open, close: around the text.

    In `open`, {name} and {id} stand for those of the call.
    """

    role: str = "tool"
    open: str = ""
    close: str = ""


class Format(Struct, frozen=True):
    """calls: the first form is how the model writes calls, the others are read, too. wraps: marks around content.
    answers: pairs of marks of which one stands around an answer.

    silent: names that look like a tool's and mean none. ends: tokens that end a turn. result: of calls, in a history.
    vocabulary: tokens that tell the format where the template does not show it; all must be there. offer: texts of
    which one, in an offer of tools, tells it. parts: tokens of which a mark is made. note: where the format comes
    from, and what was checked.
    """

    name: str
    calls: tuple[CallForm, ...] = ()
    thought: ThoughtMarks | None = None
    wraps: tuple[str, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()
    messages: Messages | None = None
    ids: CallIds = CallIds()
    silent: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    result: ResultForm = ResultForm()
    vocabulary: tuple[str, ...] = ()
    offer: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    note: str = ""

    @property
    def thinks(self) -> bool:
        """True where a turn may hold a thought."""
        return self.thought is not None or bool(self.messages and self.messages.thoughts)

    def tokens(self, *, calls: bool) -> frozenset[str]:
        """Texts that a reader must see even where the vocabulary calls them special. calls: it reads calls."""
        form = self if calls or self.messages else structs.replace(self, calls=())
        return form.texts | frozenset(self.parts)

    @property
    def texts(self) -> frozenset[str]:
        """Every literal text of the format that a reader looks for, without white space at its ends."""
        return frozenset(text for text in map(str.strip, _texts(self)) if text)


def _texts(form: Format) -> Iterator[str]:
    for call in form.calls:
        yield from (call.begin, call.open, call.close, call.end, *call.notation.texts)
    if form.thought is not None:
        yield from (form.thought.opening, form.thought.closing)
    yield from form.wraps
    if form.messages is not None:
        said = form.messages
        yield from (said.start, said.body, *said.ends, said.channel, said.constrain)


class Example(Struct, frozen=True):
    """An answer without its end token, and the message that a client gets. prompt: how the prompt ends.

    calls: (name, arguments as JSON) or (name, arguments, id).
    """

    raw: str
    content: str = ""
    thought: str = ""
    calls: tuple[tuple[str, ...], ...] = ()
    prompt: str = ""
