"""One caller's side of a running request: a mailbox that the engine fills, read without waiting.

    reader = engine.open(prompt, wake)      while (delta := reader.take()) is not None: ...

`wake` is called when there is something to take. A piece costs a reader the same whatever its number of tokens, so a
slow reader gets all waiting pieces as one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct, field

from twostroke.engine.answers.reader_watch import ReaderWatch
from twostroke.types.errors import TwostrokeError, UnreadOverflow
from twostroke.types.output import Delta, Prompt

MOST_TOKENS_TOGETHER = 256
"""The most tokens in one piece for a slow reader: the event loop does other work between two pieces."""
PIECE_BYTES, ID_BYTES, ENTRY_BYTES = 96, 8, 72


class StreamReader(Struct, eq=False):
    """The mailbox of one stream. Only the reader's own event loop uses `mail` and the fields after it. mail: the pieces
    that were not taken yet, each with the time when it was sent and its size in bytes.

    wake: called on the loop once for all pieces that came together; it may be called again before `take`, and must not
    raise. hang_up(reader): ends the request in the engine; it may be called again. parks(reader, parked): pauses the
    request in the engine (True), or resumes it (False).
    """

    prompt: Prompt
    loop: asyncio.AbstractEventLoop
    arrival_s: float
    wake: Callable[[], None]
    watch: ReaderWatch
    hang_up: Callable[[StreamReader], None]
    parks: Callable[[StreamReader, bool], None]
    mail: deque[tuple[float, Delta, int]] = field(default_factory=deque)
    error: TwostrokeError | None = None
    unread_bytes: int = 0
    num_open: int = 0  # number of completions whose last piece was not taken
    waiting: bool = True  # the reader has taken all and waits for more: it is not the cause of pieces unread now
    busy: bool = False  # the reader still handles the last piece that it took

    def __post_init__(self) -> None:
        self.num_open = self.prompt.params.n

    @property
    def request_id(self) -> str:
        """The engine's id of the request."""
        return self.prompt.request_id or ""

    @property
    def done(self) -> bool:
        """True once the last piece of every completion was taken."""
        return not self.num_open

    def take(self) -> Delta | None:
        """Returns the oldest piece. Returns None when no piece is there yet, and when the request has ended (`done`).
        Raises the error that ended the request."""
        if not self.mail:
            if self.error is not None and self.num_open:
                raise self.error
            return None
        if self.busy:
            self.watch.back()
        self.waiting, self.busy = False, True
        delta = self.watch.taken(*self._oldest())
        self.num_open -= delta.finish_reason is not None
        return delta

    def rest(self) -> None:
        """Note that the reader has done its work with all the pieces that it took, and waits for `wake` from now on."""
        if self.busy:
            self.busy = False
            self.watch.back()
        self.waiting = True

    def put(self, sent_s: float, delta: Delta, most_unread_bytes: int) -> None:
        """Add a piece; the engine calls this on the reader's loop and `wake` afterwards. A reader with more than
        most_unread_bytes unread bytes loses its request."""
        if isinstance(self.error, UnreadOverflow):
            return
        size = size_bytes(delta)
        self.mail.append((sent_s, delta, size))
        self.unread_bytes += size
        if self.unread_bytes > most_unread_bytes and not self.waiting:
            self.mail.clear()
            self.error = UnreadOverflow(f"More than {most_unread_bytes:,} bytes of answer were not read.")
            self.close()

    def fail(self, error: TwostrokeError) -> None:
        """Note that nothing more will come, because of an error; the engine calls this on the reader's loop."""
        if not isinstance(self.error, UnreadOverflow):
            self.error = error
            self.wake()

    def close(self) -> None:
        """Abort what still runs; its pages are free before the next step is planned."""
        self.hang_up(self)

    def park(self, parked: bool) -> None:
        """Pauses the request in the engine (True), or resumes it (False). A request is paused when its client has
        stopped reading while other requests wait for its place in the batch. A repeated call changes nothing."""
        self.parks(self, parked)

    def _oldest(self) -> tuple[float, float, Delta]:
        """Returns when the oldest piece was sent, when the last of the pieces joined to it was sent, and all of them as
        one piece."""
        sent_s, piece, size = self.mail.popleft()
        last_sent_s = sent_s
        self.unread_bytes -= size
        while self.mail and len(piece.token_ids) < MOST_TOKENS_TOGETHER:
            both = piece.followed_by(self.mail[0][1])
            if both is None:
                break
            last_sent_s, _, size = self.mail.popleft()
            self.unread_bytes -= size
            piece = both
        return sent_s, last_sent_s, piece


def size_bytes(delta: Delta) -> int:
    """Returns about how many bytes a piece takes in memory until it is read."""
    entries = sum(1 + len(each.top) for each in delta.logprobs) if delta.logprobs else 0
    return PIECE_BYTES + len(delta.text) + ID_BYTES * len(delta.token_ids) + ENTRY_BYTES * entries
