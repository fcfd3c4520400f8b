"""Asks other replicas for pages and image rows, with one thread and one connection for each replica that is asked.

To the replica that answers, this replica looks like one more front (API server). Several questions may be open at a
time, because a page may have to be computed before it is sent. Where no whole answer comes in time, the answer is None.
A replica answers between two of its steps and sends heartbeats meanwhile. A replica that sends nothing has ended; one
that sends heartbeats may be in a long step.
"""

from __future__ import annotations

import math
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from twostroke.distributed.cluster.arithmetic import difference
from twostroke.distributed.cluster.framing import WireError
from twostroke.distributed.cluster.link import FrameLink, LinkLost
from twostroke.distributed.cluster.waker import Waker
from twostroke.distributed.wire.frames import (
    Beat,
    Frame,
    PagesAsked,
    PageSource,
    PagesSent,
    ReplicaFacts,
    RowsAsked,
    RowsSent,
)

ANSWER_S = 5.0
"""The seconds to wait for another replica's answer, connecting included. After them the pages are computed here
instead. Where steps are long, the wait is longer: see LONGEST_STEPS."""
LONGEST_STEPS = 2
"""The wait for an answer is never shorter than this many times the other replica's longest step so far. It is also
never shorter than this many times the predicted seconds of computing the wanted pages here."""
SILENCE_S = 3.0
"""The seconds without a byte from the other replica, heartbeats included, after which it is considered lost."""
MOST_SOURCES = 64
MEASURED_BYTES = 64 << 10
"""The transfer rate is measured from answers of at least this many bytes."""
NEW_SHARE = 0.3
"""The weight of the latest answer in the transfer rate, which is a moving average."""

Asked = PagesAsked | RowsAsked
Sent = PagesSent | RowsSent
Came = Callable[[int, Sent | None], None]
"""Called with the number of a question and its answer, which is None where none came."""


@dataclass(eq=False)
class _Line:
    """The connection to one replica. asks: questions that are not sent yet, each with the predicted seconds of
    computing its pages here. asked: for each question that was sent, by number, the time at which waiting for its
    answer ends.

    heard_s: the time when bytes last came. began_s: the time when the first bytes of an answer came. step_s: the
    longest step that the other replica has reported on this connection.
    """

    source: PageSource
    asks: queue.SimpleQueue[tuple[Asked, float] | None] = field(default_factory=queue.SimpleQueue)
    waker: Waker = field(default_factory=Waker)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    link: FrameLink | None = None
    asked: dict[int, float] = field(default_factory=dict)
    heard_s: float = 0.0
    step_s: float = 0.0
    began_s: float | None = None

    def __post_init__(self) -> None:
        self.selector.register(self.waker, selectors.EVENT_READ)


class PageCalls:
    """Asks other replicas for pages and image rows. facts: this replica's own facts, which the other's must match.
    came: a function that takes the answer to each question; a thread of this object calls it. say: writes to the log.

    rate: the measured transfer rate of answers in bytes a second; 0 before the first.
    """

    def __init__(self, secret: bytes, facts: ReplicaFacts, came: Came, say: Callable[[str], None]) -> None:
        self._secret, self._facts, self._came, self._say = secret, facts, came, say
        self._lines: dict[PageSource, _Line] = {}
        self.rate = 0.0

    def ask(self, source: PageSource, asked: Asked, own_s: float = 0.0) -> None:
        """Asks a replica for pages or image rows, without waiting for the answer. own_s: the predicted seconds of
        computing them here. Only one thread may call it."""
        if source not in self._lines:
            if len(self._lines) >= MOST_SOURCES:  # replicas that have ended are among these lines
                self.close()
            line = self._lines[source] = _Line(source)
            threading.Thread(target=self._call, args=(line,), name="replica-pages", daemon=True).start()
        self._lines[source].asks.put((asked, own_s))
        self._lines[source].waker.wake()

    def close(self) -> None:
        """Ends the threads and connections. Open questions get the answer None."""
        for line in self._lines.values():
            line.asks.put(None)
            line.waker.wake()
        self._lines.clear()

    def _call(self, line: _Line) -> None:
        ended = False
        while not ended:
            try:
                ended = self._ask_all(line)
                self._listen(line)
            except (OSError, WireError) as error:  # LinkLost is an OSError
                self._say(f"no pages from {line.source.host}:{line.source.port}: {error}")
                ended = self._give_up(line)
                self._hang_up(line)
        self._hang_up(line)
        line.selector.close()
        line.waker.close()

    def _ask_all(self, line: _Line) -> bool:
        """Sends the questions that were not sent yet over the connection. Returns whether the connection is to be
        closed for good."""
        while not line.asks.empty():
            ask = line.asks.get()
            if ask is None:
                return True
            asked, own_s = ask
            line.asked[asked.number] = time.monotonic() + max(ANSWER_S, LONGEST_STEPS * max(own_s, line.step_s))
            line.link = line.link or self._greet(line, time.monotonic() + ANSWER_S)
            line.link.send(asked)
        return False

    def _give_up(self, line: _Line) -> bool:
        """Gives up all questions that wait to be sent, after the connection to their replica has failed. So a replica
        that is gone costs this thread one wait, not one for each question. Returns whether the connection is closed for
        good."""
        while line.asked and not line.asks.empty():
            ask = line.asks.get()
            if ask is None:
                return True
            line.asked[ask[0].number] = 0.0
        return False

    def _listen(self, line: _Line) -> None:
        """Handles the answers and heartbeats of one replica, until they end or the wait for one of its answers is over.
        Raises LinkLost in the second case. Frames that have already come are read before the time is checked."""
        until_s = min((*line.asked.values(), line.heard_s + SILENCE_S)) if line.asked else math.inf
        for frame in _frames(line, min(SILENCE_S, max(0.0, until_s - time.monotonic()))):
            if isinstance(frame, Beat):
                line.step_s = max(line.step_s, frame.load.step_s)
            elif isinstance(frame, (PagesSent, RowsSent)) and line.asked.pop(frame.number, None) is not None:
                self._measure(line, frame)
                self._came(frame.number, frame)
        if line.link is None or not line.link.partial:
            line.began_s = None
        if line.asked and time.monotonic() >= min((*line.asked.values(), line.heard_s + SILENCE_S)):
            raise LinkLost("no answer in time")

    def _measure(self, line: _Line, frame: Sent) -> None:
        seconds = time.monotonic() - (line.began_s or 0.0)
        size = len(frame.data) if isinstance(frame, RowsSent) else sum(len(page.data) for page in frame.pages)
        if size >= MEASURED_BYTES and line.began_s is not None and seconds > 0:
            self.rate += (size / seconds - self.rate) * (NEW_SHARE if self.rate else 1.0)
        line.began_s = time.monotonic()

    def _greet(self, line: _Line, until_s: float) -> FrameLink:
        source, left_s = line.source, max(0.1, until_s - time.monotonic())
        sock = socket.create_connection((source.host, source.port), left_s)
        line.link = FrameLink(sock, self._secret, "front", "replica")
        line.link.watch(line.selector)
        while (left_s := until_s - time.monotonic()) > 0:
            for frame in _frames(line, left_s):
                if isinstance(frame, ReplicaFacts):
                    if frame.instance != source.instance:
                        raise LinkLost("it was started anew")
                    if found := difference(self._facts, frame):
                        raise LinkLost(f"it differs from this replica in {found}")
                    return line.link
        raise LinkLost("no answer in time")

    def _hang_up(self, line: _Line) -> None:
        """Closes the connection. Questions that were sent over it get the answer None."""
        if line.link is not None:
            line.link.close()
        line.link, line.began_s, line.step_s = None, None, 0.0
        numbers = [*line.asked]
        line.asked.clear()
        for number in numbers:
            self._came(number, None)


def _frames(line: _Line, left_s: float) -> list[Frame]:
    """Returns the frames that come within left_s seconds, heartbeats included. Returns an empty list where nothing
    comes, and at once where `ask` adds a question, so that the caller can send it."""
    frames: list[Frame] = []
    for key, events in line.selector.select(left_s):
        if key.fileobj is line.waker:
            line.waker.clear()
        elif line.link is not None:
            line.heard_s = time.monotonic()
            frames = line.link.exchange(events)
            if line.began_s is None and (frames or line.link.partial):
                line.began_s = line.heard_s
    return frames
