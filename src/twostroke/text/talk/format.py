r"""The format in which one family of models writes a turn. A format is data; readers, grammars and renderers are made
from it.

    Format("hermes", calls=(CallForm(ObjectNotation(), open="<tool_call>\n", close="\n</tool_call>"),))

A mark is a literal text, such as `<tool_call>`, around a part of a turn. Every text is exactly as the model writes it.
A reader looks for it without the white space at its ends.
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


FENCE = "```"
"""The mark around a block of code in a text."""


class Notation(Protocol):
    """The syntax in which the name and the arguments of one tool call are written, without the marks around calls."""

    @property
    def lead(self) -> str:
        """The text with which a call begins and which tells a call from prose; "" for none."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The literal texts of the syntax, such as tags."""

    def fits(self, stream: TextStream) -> Reading[bool]:
        """Returns True where the stream's next text may be a call. Takes nothing from the stream."""

    def read(self, stream: TextStream, call: Calling) -> Reading[None]:
        """Reads one call, with its `lead`, and reports it to `call`: first the name, with `call.name`, then the
        arguments, with `call.argue`. Returns at the first text that is not part of the call."""

    def write(self, name: str, arguments: Mapping[str, Any], call_id: str) -> str:
        """Returns the call as the model writes it."""

    def rule(self, name: str, schema: Mapping[str, Any], lark: Lark) -> str:
        """Returns the body of a grammar's rule for a call of this tool."""


class CallForm(Struct, frozen=True):
    """The calls of a turn, written as `begin`, then `open`, a call and `close` for each call, and `end`. `between`
    stands between two calls.

    listed: True where square brackets stand around all calls, between `begin` and `end`.
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
        """True where no mark tells a call from an answer. A text that begins like a call is then a call if a tool has
        its name."""
        return not self.starts

    @property
    def fenced(self) -> bool:
        """True where calls stand in a block of code. Such blocks also hold other text: their text is a call only if a
        tool has its name, and never within a thought."""
        return self.begin.startswith(FENCE)

    @property
    def starts(self) -> tuple[str, ...]:
        """The marks that may begin a call, each by itself: a model sometimes forgets some of them."""
        marks = (self.begin.strip(), self.open.strip(), self.notation.lead)
        return tuple(mark for mark in marks if mark)


class ThoughtMarks(Struct, frozen=True):
    """The texts around a thought, such as `<think>` and `</think>`.

    prompts: further texts that open a thought if the prompt ends with them, in addition to `opening`. anywhere: True
    where `opening` also opens a thought in the middle of an answer, because ordinary text never contains it. following:
    the text after a thought, before the next part of the turn.
    """

    opening: str
    closing: str
    prompts: tuple[str, ...] = ()
    anywhere: bool = False
    following: str = ""

    def opened_by(self, prompt_end: str) -> bool:
        """Returns True where the prompt itself opened the thought, so that the answer starts within it."""
        bare = prompt_end.rstrip()
        return any(bare.endswith(end.rstrip()) for end in (self.opening, *self.prompts))

    def closed_by(self, prompt_end: str) -> bool:
        """Returns True where the prompt itself ended the thought, so that the answer holds none."""
        return prompt_end.rstrip().endswith(self.closing.strip())


class Messages(Struct, frozen=True):
    """The marks of several messages in one turn. Each message is written as: start header body text end.

    start: the text with which a message begins; the prompt has the first one. body: the mark that ends the header.
    ends: the marks that end a message. channel: the mark before a channel's name. thoughts: the channels, or
    recipients, of thoughts. recipient: the text before a recipient's name, "" where the header is the recipient alone.
    prefix: the text before the names of tools. everyone: the recipients that mean the user. constrain: the mark in the
    header of a call. inside: True where a call's text also holds the marks of calls.
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
    """The form of a call's result in a history. role: the role of its turn. open, close: the texts around the result.

    In `open`, {name} and {id} stand for the name and the id of the call.
    """

    role: str = "tool"
    open: str = ""
    close: str = ""


class Format(Struct, frozen=True):
    """How one family of models writes a turn. calls: the model writes calls in the first form; the other forms are
    read, too. wraps: marks around content, which are not part of it. answers: pairs of marks, one of which stands
    around an answer.

    silent: names that stand in the place of a tool's name when the model calls no tool. ends: tokens that end a turn.
    result: the form of calls' results in a history. vocabulary: tokens that identify the format where the template does
    not show it; all of them must be in the vocabulary. offer: texts that identify the format where one of them stands
    in an offer of tools. parts: special tokens that are only a part of one of these marks. note: the source of the
    format, and the checks that were made.
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
        """Returns the texts that must reach the reader of an answer, also where they are special tokens, which are
        otherwise left out of the text. calls: True where the reader reads calls."""
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
    """A test case of a format: the text that a model writes (`raw`, without its end token), and the message that a
    client gets. prompt: the end of the prompt, which may open a thought.

    calls: (name, arguments as JSON) or (name, arguments, id).
    """

    raw: str
    content: str = ""
    thought: str = ""
    calls: tuple[tuple[str, ...], ...] = ()
    prompt: str = ""
