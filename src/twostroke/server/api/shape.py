"""The interface by which answers get the form of an API, and the blocks (text, reasoning, tool calls) that chat answers
consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from twostroke.server.api.shapes.reasoning_count import ReasoningCount
from twostroke.server.api.shapes.text_calls import TextCalls
from twostroke.server.api.sse import SSE, Event, EventTemplate, StreamForm
from twostroke.server.calls import Call
from twostroke.server.errors import Problem
from twostroke.server.serving import Serving
from twostroke.text.talk.pieces import CallArguments, CallBegan, Piece, Said, Thought
from twostroke.types.output import Delta

HEARTBEAT = b": waiting\n\n"


class Counts(NamedTuple):
    """The numbers of tokens so far, over all choices. completion: the output tokens. cached: the prompt tokens from the
    cache, known at the end."""

    completion: int
    cached: int


class Shape(Protocol):
    """One answer in one API's form, either streamed or whole."""

    heartbeat: bytes
    written: StreamForm

    def events(self, index: int, delta: Delta, counts: Counts) -> list[Event]:
        """Returns the events for a new piece of choice `index`."""

    def text_event(self, index: int, delta: Delta) -> bytes | None:
        """Returns the bytes of a piece that only adds text, as most pieces do: those that `events` would make, but
        faster. For any other piece it returns None, and the caller calls `events`."""

    def progress_events(self, news: dict[str, Any]) -> list[Event]:
        """Returns events with the progress of the prompt, when this API has such events."""

    def last_events(self, counts: Counts) -> list[Event]:
        """Returns the events that end a stream."""

    def problem_events(self, problem: Problem) -> list[Event]:
        """Returns the events that end a failed stream."""

    @property
    def closing(self) -> bytes:
        """Returns the bytes after the last event."""

    def collect(self, index: int, delta: Delta) -> None:
        """Takes a piece of an answer that is not streamed."""

    def whole(self, counts: Counts) -> dict[str, Any]:
        """Returns the answer to a request that is not streamed, once all pieces are in."""


@dataclass(slots=True)
class Block:
    """A part of a chat answer: "text", "reasoning", or "call", a tool call with its name and id. In a tool call, `text`
    is the JSON of the arguments.

    takes_text: True for a call of a tool that takes a text; `text` is then this text.
    """

    kind: str
    index: int
    name: str = ""
    call_id: str = ""
    text: str = ""
    takes_text: bool = False


class Opened(NamedTuple):
    """A change of a chat answer: a new block (text, reasoning or tool call) begins."""

    block: Block


class Grew(NamedTuple):
    """A change of a chat answer: its last block got more text."""

    block: Block
    text: str


class Closed(NamedTuple):
    """A change of a chat answer: a block is complete."""

    block: Block


Step = Opened | Grew | Closed


@dataclass(slots=True)
class Blocks:
    """Divides a chat answer into blocks (text, reasoning, tool calls), piece by piece; one block is open at a time.
    new_call_id: returns an id for a tool call. text_tools: the names of custom tools, whose calls are a text in place
    of JSON. taken: the ids of calls so far. If the model writes one of these ids again, the call gets a new id, so that
    a result belongs to one call."""

    new_call_id: Callable[[str], str]
    text_tools: frozenset[str] = frozenset()
    taken: set[str] = field(default_factory=set)
    blocks: list[Block] = field(default_factory=list)
    _open: bool = False

    def take(self, pieces: Iterable[Piece]) -> list[Step]:
        """Adds parsed pieces to the blocks. Returns the changes: blocks that were opened, got more text, or were
        closed."""
        steps: list[Step] = []
        for piece in pieces:
            if isinstance(piece, CallBegan):
                block = Block("call", len(self.blocks), piece.name, self._id_of(piece))
                block.takes_text = piece.name in self.text_tools
                steps += self._begin(block)
                continue
            kind = "call" if isinstance(piece, CallArguments) else "reasoning" if isinstance(piece, Thought) else "text"
            if not self._open or self.blocks[-1].kind != kind:
                steps += self._begin(Block(kind, len(self.blocks)))
            self.blocks[-1].text += piece.text
            steps.append(Grew(self.blocks[-1], piece.text))
        return steps

    def close(self) -> list[Step]:
        """Closes the open block when the answer ends. Returns this change; an empty list where no block is open."""
        steps: list[Step] = [Closed(self.blocks[-1])] if self._open else []
        self._open = False
        return steps

    @property
    def in_text(self) -> bool:
        """True while the block that is open is text for the user, not reasoning or a tool call."""
        return self._open and self.blocks[-1].kind == "text"

    def text_of(self, kind: str) -> str:
        """Returns the text of all blocks of a kind, joined."""
        return "".join(block.text for block in self.blocks if block.kind == kind)

    @property
    def calls(self) -> list[Block]:
        """The blocks that are tool calls."""
        return [block for block in self.blocks if block.kind == "call"]

    def _id_of(self, piece: CallBegan) -> str:
        own = piece.call_id
        made = own if own and own not in self.taken else self.new_call_id(piece.name)
        self.taken.add(made)
        return made

    def _begin(self, block: Block) -> list[Step]:
        steps = self.close()
        self.blocks.append(block)
        self._open = True
        return [*steps, Opened(block)]


def _call_index(piece: Piece) -> int:
    return piece.index if isinstance(piece, CallBegan | CallArguments) else 0


class ChatTurn:
    """One choice of a chat answer. It makes blocks of the text that comes in deltas; it also has the reason of the end
    and the number of reasoning tokens."""

    def __init__(self, call: Call, new_id: Callable[[], str], token_text: Callable[[int], bytes]) -> None:
        self._turn = call.turn.new_reader()
        self._one = call.turn.tools.one
        self._calls_only = call.turn.tools.forced
        self._texts = TextCalls(call.turn.tools.texts)
        self._count = ReasoningCount(call.turn.new_counting_reader(), token_text)
        self._call, self._new_id = call, new_id
        self.made = Blocks(self._new_call_id, call.turn.tools.texts, taken=set(call.turn.earlier_ids))
        self.finish_reason = ""
        self.stop_reason: str | int | None = None

    def _new_call_id(self, name: str) -> str:
        """Returns an id that no call of the conversation has."""
        begin, taken = len(self.made.calls), self.made.taken
        tries = (self._call.turn.new_call_id(self._new_id(), name, begin + more) for more in range(len(taken) + 1))
        return next((each for each in tries if each not in taken), self._new_id())

    @property
    def reasoning_tokens(self) -> int:
        """The number of tokens of the reasoning so far."""
        return self._count.tokens

    def take(self, delta: Delta) -> list[Step]:
        """Returns how this delta changes the blocks; the last delta closes them."""
        self._count.add(delta.token_ids)
        pieces = self._turn.feed(delta.text)
        if delta.finish_reason is not None:
            pieces += self._turn.finish()
        pieces = self._texts.feed(pieces)
        if delta.finish_reason is not None:
            pieces += self._texts.finish()
        steps = self.made.take(piece for piece in pieces if self._belongs(piece))
        if delta.finish_reason is not None:
            steps += self.made.close()
            self.finish_reason = delta.finish_reason.value
            self.stop_reason = delta.stop_reason
        return steps

    def passes(self, delta: Delta) -> bool:
        """Returns True when the delta only adds text to the open block. Then its tokens are counted, and the caller
        adds the text to the block where it is needed. When it returns False, nothing has changed. delta: must not be
        the answer's last delta."""
        if self._calls_only or not (self.made.in_text and self._turn.passes(delta.text)):
            return False
        self._count.passed(delta.token_ids)
        return True

    def _belongs(self, piece: Piece) -> bool:
        """Returns whether the client gets a piece. It does not get hidden reasoning, nor a second tool call where only
        one is allowed. Where the answer must consist of tool calls, a text is an unfinished tool call, and is left out
        too."""
        if self._calls_only and isinstance(piece, Said):
            return False
        if isinstance(piece, Thought) and self._call.turn.hides_thoughts:
            return False
        return not (self._one and _call_index(piece))

    @property
    def called(self) -> bool:
        """True when the answer ends with tool calls that the client should make."""
        return bool(self.made.calls) and self.finish_reason == "stop"


class TurnShape:
    """The base of the Shapes of Responses and Anthropic's Messages, whose answers have one choice each: methods that
    are the same for both. Satisfies a part of Shape."""

    heartbeat = HEARTBEAT
    written = SSE
    closing = b""

    def __init__(self, call: Call, serving: Serving) -> None:
        self._call = call
        self._serving = serving
        self._turn = ChatTurn(call, serving.new_id, serving.tokenizer.token_bytes)
        self._begun = False
        self._templates: dict[int, EventTemplate] = {}

    def progress_events(self, news: dict[str, Any]) -> list[Event]:
        """Returns no events, because these APIs have none for progress."""
        return []
