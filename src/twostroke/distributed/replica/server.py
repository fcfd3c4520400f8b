"""Runs a replica as a process. One thread computes steps and sends their events. Another takes the frames of fronts
(API servers) and other replicas, and sends heartbeats and pages."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from twostroke.distributed.cluster.accepting import accepted
from twostroke.distributed.cluster.link import FrameLink, LinkLost
from twostroke.distributed.cluster.waker import Waker
from twostroke.distributed.replica.core import ReplicaCore
from twostroke.distributed.replica.own_salt import with_own_salt
from twostroke.distributed.replica.page_calls import PageCalls
from twostroke.distributed.replica.page_exchange import hash_of
from twostroke.distributed.replica.page_feeds import LinkId
from twostroke.distributed.replica.tile_pulls import TilePulls, Waiting
from twostroke.distributed.wire.frames import (
    Assignment,
    Beat,
    Cancel,
    Frame,
    PagesAhead,
    PagesAsked,
    PagesSent,
    RecordAsked,
    Refused,
    ReplicaFacts,
    RowsAsked,
    RowsSent,
    TilesAhead,
    TileSent,
)
from twostroke.distributed.wire.translate import EncodeJob
from twostroke.engine.resources import Grammars
from twostroke.types.errors import TwostrokeError
from twostroke.types.grammar import Grammar, TokenMask

BEAT_S = 0.25
RETRY_S = 0.05
MOST_FRONTS = 64
BUSY_BYTES = 4 << 20
"""While a connection has more unsent bytes than this, no pages are sent over it. A further answer could bring it above
MOST_UNSENT_BYTES, at which a connection is closed."""
GREETING_S = 5.0
ENCODE_S = 0.1
"""The most predicted seconds of encoding images for other replicas between two steps. Commands from other processes
wait for that long."""


@dataclass(eq=False, slots=True)
class _Front:
    """A connection of a front (API server), or of a replica that asks for pages. told: whether our ReplicaFacts were
    sent over it."""

    link: FrameLink
    since_s: float
    told: bool = False


class ReplicaServer:
    """Serves one replica over sockets. `serve` returns after `stop`, and raises the error that ends the engine. say:
    writes a line to the log."""

    def __init__(
        self,
        core: ReplicaCore,
        facts: ReplicaFacts,
        grammars: Grammars,
        listener: socket.socket,
        secret: bytes,
        say: Callable[[str], None],
    ) -> None:
        self._core, self._facts, self._grammars = core, facts, grammars
        self._listener, self._secret, self._say = listener, secret, say
        self._selector = selectors.DefaultSelector()
        self._fronts: dict[LinkId, _Front] = {}
        self._last_id = 0
        self._changed = threading.Condition()
        self._commands: deque[Callable[[], None]] = deque()  # commands for the step thread
        self._pages: deque[tuple[LinkId, Frame]] = deque()  # _pages and _lost are for the thread that listens
        self._lost: deque[tuple[LinkId, str]] = deque()
        self._compiling: set[tuple[LinkId, int]] = set()  # grammars under way that are not cancelled
        self._tiles = TilePulls()
        self._waker = Waker()
        self._stopping = False
        self._draining = False
        self._error: BaseException | None = None
        self._load = core.load()
        self._page_calls = PageCalls(secret, facts, self._pages_came, say)

    @property
    def tile_bytes(self) -> int:
        """The number of bytes of image pixels received since the start."""
        return self._tiles.received_bytes

    def stop(self) -> None:
        """Ends `serve`. Fronts move running streams to other replicas. Any thread or signal handler may call it."""
        self._stopping = True
        self._waker.wake()

    def drain(self) -> None:
        """Refuses new work; `serve` ends when nothing runs. Any thread or signal handler may call it."""
        self._draining = True
        self._waker.wake()

    def serve(self) -> None:
        """Serves until `stop` is called or draining is complete. Raises the error that ended the engine, if any."""
        self._listener.setblocking(False)
        steps = threading.Thread(target=self._compute, name="replica-steps", daemon=True)
        steps.start()
        with self._selector:
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._selector.register(self._waker, selectors.EVENT_READ)
            try:
                self._listen()
            finally:
                self._stopping = True
                with self._changed:
                    self._changed.notify_all()
                steps.join()
                self._page_calls.close()
                for front in self._fronts.values():
                    front.link.close()
                self._waker.close()
        if self._error is not None:
            raise self._error

    # The methods from here on run in the thread that listens.

    def _listen(self) -> None:
        next_beat_s = 0.0
        while not self._stopping and not (self._draining and self._idle()):
            for key, events in self._selector.select(max(0.0, min(BEAT_S, next_beat_s - time.monotonic()))):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._waker:
                    self._waker.clear()
                else:
                    self._attend(key.data, events)
            while self._pages:
                self._send(*self._pages.popleft())
            while self._tiles.asks:
                self._send(*self._tiles.asks.popleft())
            while self._lost:
                self._drop(*self._lost.popleft())
            if time.monotonic() >= next_beat_s:
                next_beat_s = time.monotonic() + BEAT_S
                self._send_beats()
                self._tiles.ask()
                if self._listener not in self._selector.get_map():
                    self._selector.register(self._listener, selectors.EVENT_READ)

    def _idle(self) -> bool:
        under_way = self._commands or self._core.outbox or self._pages or self._compiling or self._tiles
        return self._core.idle and not under_way

    def _accept(self) -> None:
        found = accepted(self._listener)
        if found is None:  # no room: the open call would wake this thread all the time, so the next beat tries again
            self._selector.unregister(self._listener)
            return
        sock, _ = found
        try:
            if len(self._fronts) >= MOST_FRONTS:
                raise LinkLost("too many are connected")
            link = FrameLink(sock, self._secret, "replica", "front")
            link.watch(self._selector, self._last_id + 1)
        except LinkLost:
            sock.close()
            return
        self._last_id += 1
        self._fronts[self._last_id] = _Front(link, time.monotonic())

    def _attend(self, link_id: LinkId, events: int) -> None:
        front = self._fronts.get(link_id)
        if front is None:
            return
        try:
            frames = front.link.exchange(events)
            if front.link.trusted and not front.told:
                front.told = True
                self._command(lambda: self._core.open(link_id))
                front.link.send(self._facts)
                self._say("a front has connected, or a replica for pages")
            for frame in frames:
                self._take(link_id, frame)
        except LinkLost as error:
            self._drop(link_id, str(error))

    def _take(self, link_id: LinkId, frame: Frame) -> None:
        core = self._core
        if self._facts.adapters:
            frame = with_own_salt(frame, self._facts)
        if isinstance(frame, Cancel):
            self._compiling.discard((link_id, frame.number))
            self._tiles.cancel(link_id, frame.number)
            self._command(lambda: core.cancel(link_id, frame.number))
        elif isinstance(frame, Assignment):
            self._take_work(link_id, frame)
        elif isinstance(frame, TileSent):
            self._go_on(self._tiles.came(link_id, frame))
        elif isinstance(frame, PagesAsked):
            self._command(lambda: core.feeds.ask(link_id, frame, time.monotonic()))
        elif isinstance(frame, PagesAhead):
            self._command(lambda: core.pulls.ahead(link_id, frame))
        elif isinstance(frame, RowsAsked):
            self._command(lambda: core.row_feeds.ask(link_id, frame, time.monotonic()))
        elif isinstance(frame, TilesAhead):
            self._take_tiles(link_id, frame)
        elif isinstance(frame, RecordAsked):  # comes after a Cancel that was sent before it
            self._command(lambda: core.record(link_id, frame))
        else:
            raise LinkLost(f"a front does not send {type(frame).__name__}")

    def _take_work(self, link_id: LinkId, work: Assignment) -> None:
        if self._draining:
            self._refuse(link_id, work, "This replica is about to end.", 1.0)
            return
        if not work.images:
            self._go_on([(link_id, work)])
        elif not self._facts.sight or self._tiles.waits(link_id, work.number):
            self._refuse(link_id, work, "This replica takes no image here.")
        else:
            try:
                self._go_on(self._tiles.begin(link_id, work))
            except ValueError as error:
                self._refuse(link_id, work, str(error))

    def _take_tiles(self, link_id: LinkId, ahead: TilesAhead) -> None:
        """Asks the front (API server) for the pixels of tiles to encode for another replica. A frame with invalid tiles
        is ignored; the replica that asks for their rows gets none and encodes the tiles itself."""
        if self._facts.sight and not self._draining:
            self._command(lambda: self._core.row_feeds.expect(link_id, ahead))
            with contextlib.suppress(ValueError):
                self._go_on(self._tiles.begin(link_id, ahead))

    def _go_on(self, ready: Sequence[Waiting]) -> None:
        """Begins the work in `ready`, whose images have all come."""
        for link_id, work in ready:
            if isinstance(work, EncodeJob):
                self._command(partial(self._core.row_feeds.begin, link_id, work))
            elif work.request.params.grammar is None:
                self._command(partial(self._core.work, link_id, work))
            else:
                self._compile(link_id, work, work.request.params.grammar)

    def _compile(self, link_id: LinkId, work: Assignment, grammar: Grammar) -> None:
        numbers = {(link_id, number) for number in (work.number, *work.beams)}
        self._compiling |= numbers

        def begin(masks: tuple[TokenMask, ...]) -> None:
            wanted = numbers <= self._compiling
            self._compiling.difference_update(numbers)
            if wanted:
                self._core.work(link_id, work, masks)

        def compiled(future: Future[tuple[TokenMask, ...]]) -> None:
            try:
                masks = future.result()
                for mask, token_id in itertools.product(masks, work.resumed):
                    mask.feed(token_id)
            except Exception as error:
                self._compiling.difference_update(numbers)
                self._refuse(link_id, work, str(error))
                return
            self._command(lambda: begin(masks))

        try:
            self._grammars.submit(grammar, 1 + len(work.beams)).add_done_callback(compiled)
        except TwostrokeError as error:
            self._compiling.difference_update(numbers)
            self._refuse(link_id, work, str(error), 1.0)

    def _refuse(self, link_id: LinkId, work: Assignment, why: str, retry_after_s: float | None = None) -> None:
        """Refuses an Assignment. Any thread may call it."""
        self._send(link_id, Refused(work.number, why, retry_after_s))

    def _send_beats(self) -> None:
        now = time.monotonic()
        for link_id, front in list(self._fronts.items()):
            if front.told:
                self._send(link_id, Beat(self._load, self._draining))
            elif now - front.since_s > GREETING_S:
                self._drop(link_id, "it did not finish its greeting")

    def _send(self, link_id: LinkId, frame: Frame) -> None:
        """Sends a frame over a connection, if it still exists. Any thread may call it."""
        front = self._fronts.get(link_id)
        if front is None:
            return
        try:
            front.link.send(frame)
        except LinkLost as error:
            self._lost.append((link_id, str(error)))
            self._waker.wake()

    def _drop(self, link_id: LinkId, why: str) -> None:
        front = self._fronts.pop(link_id, None)
        if front is None:
            return
        front.link.close()
        self._tiles.cancel(link_id)
        self._command(lambda: self._core.close(link_id))
        self._say(f"a front has gone: {why}")

    # The methods from here on run in the thread that computes.

    def _command(self, command: Callable[[], None]) -> None:
        """Queues a command for the thread that computes, which runs it between two steps. Any thread may call it."""
        with self._changed:
            self._commands.append(command)
            self._changed.notify_all()

    def _compute(self) -> None:
        core = self._core
        try:
            while not self._stopping:
                stuck = False
                if core.has_work:
                    load = core.step()
                    if stuck := load is None:
                        core.let_go()
                    self._load = load or core.load()
                    self._send_news()
                elif not self._commands:  # a waiting command must not wait for core.load()
                    self._load = core.load()
                taken = self._take_commands()  # pages of this step answer the questions that came during it
                encoded = core.row_feeds.work(ENCODE_S)
                answered = core.answer(time.monotonic(), self._busy())
                self._send_news()
                if not (taken or answered or encoded):
                    self._wait(stuck)
        except BaseException as error:
            self._error = error
        finally:
            self._stopping = True
            self._waker.wake()

    def _send_news(self) -> None:
        """Sends the events in the outbox to their fronts from the step thread: a handover to the listening thread would
        delay each token. The listening thread sends pages and image rows, which are not urgent."""
        outbox = self._core.outbox
        while outbox:
            link_id, frame = outbox.popleft()
            if isinstance(frame, (PagesSent, RowsSent)):
                self._pages.append((link_id, frame))
                self._waker.wake()
            else:
                self._send(link_id, frame)

    def _busy(self) -> set[LinkId]:
        return {link for link, front in list(self._fronts.items()) if front.link.unsent_bytes > BUSY_BYTES}

    def _take_commands(self) -> bool:
        """Runs the commands that the listening thread has queued, and then asks other replicas for the pages and image
        rows that new requests need. Returns whether there were any commands."""
        taken = bool(self._commands)
        while self._commands:
            self._commands.popleft()()
        while self._core.pulls.asks:
            source, asked = self._core.pulls.asks.popleft()
            own_s = asked.count * self._facts.page_tokens * self._load.token_s
            self._page_calls.ask(source, asked, own_s)
        while self._core.row_pulls.asks:
            self._page_calls.ask(*self._core.row_pulls.asks.popleft())
        return taken

    def _pages_came(self, number: int, sent: PagesSent | RowsSent | None) -> None:
        """Takes another replica's answer with pages or image rows. A thread of PageCalls runs it and computes the
        hashes; the rest is a command for the thread that computes."""
        found = hash_of(sent.data) if isinstance(sent, RowsSent) else b""
        hashes = [hash_of(page.data) for page in sent.pages] if isinstance(sent, PagesSent) else []

        def go_on() -> None:
            self._core.page_rate = self._page_calls.rate
            if not isinstance(sent, RowsSent):
                self._core.pages_came(number, sent, hashes)
            if not isinstance(sent, PagesSent):
                self._core.rows_came(number, sent, found)

        self._command(go_on)

    def _wait(self, stuck: bool) -> None:
        """Waits until a command is queued, for at most 1 s. The wait is at most RETRY_S in three cases: no step could
        be planned, another replica waits for pages or image rows, or pages are still to be written to disk."""
        with self._changed:
            if not self._commands and not self._stopping and (stuck or not self._core.has_work):
                soon = stuck or self._core.waits or self._load.disk_waits
                self._changed.wait(RETRY_S if soon else 1.0)
