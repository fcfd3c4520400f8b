"""Calls to other replicas for pages: one thread and one connection for each replica that is asked.

To the replica that answers, this side is one more front. Questions do not wait for each other's answers: a page may
have to be computed first. Where there is no whole answer in time, the answer is None.

Knows: sockets, the greeting, the facts of both sides.
Must not know: caches, requests.
"""

from __future__ import annotations

import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from twostroke.cluster.arithmetic import difference
from twostroke.cluster.framing import WireError
from twostroke.cluster.link import FrameLink, LinkLost
from twostroke.cluster.waker import Waker
from twostroke.wire.frames import Frame, PagesAsked, PageSource, PagesSent, ReplicaFacts

ANSWER_S = 5.0
"""The longest wait for one answer, in seconds, with the greeting where there is none yet. After it the pages are
computed instead, so no request waits longer."""
KEPT_S = 5.0
"""Seconds without a question after which a connection is closed."""
MOST_SOURCES = 64
MEASURED_BYTES = 64 << 10
"""Smaller answers say nothing of the rate."""
NEW_SHARE = 0.3
"""The weight of the last answer in the measured rate."""

Came = Callable[[int, PagesSent | None], None]
"""(number of the question, answer)."""


@dataclass(eq=False)
class _Line:
    """One replica. asked: until when each question may be answered. began_s: when the first bytes of an answer came."""

    source: PageSource
    asks: queue.SimpleQueue[PagesAsked | None] = field(default_factory=queue.SimpleQueue)
    waker: Waker = field(default_factory=Waker)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    link: FrameLink | None = None
    asked: dict[int, float] = field(default_factory=dict)
    began_s: float | None = None

    def __post_init__(self) -> None:
        self.selector.register(self.waker, selectors.EVENT_READ)


class PageCalls:
    """facts: this replica's own. came: called once for each question, from a thread of this object. rate: bytes of
    pages that come in a second, from their first byte to the last; 0 before the first."""

    def __init__(self, secret: bytes, facts: ReplicaFacts, came: Came, say: Callable[[str], None]) -> None:
        self._secret, self._facts, self._came, self._say = secret, facts, came, say
        self._lines: dict[PageSource, _Line] = {}
        self.rate = 0.0

    def ask(self, source: PageSource, asked: PagesAsked) -> None:
        """Ask a replica for pages, without waiting for the answer. One thread calls it."""
        if source not in self._lines:
            if len(self._lines) >= MOST_SOURCES:  # replicas that have ended are among them
                self.close()
            line = self._lines[source] = _Line(source)
            threading.Thread(target=self._call, args=(line,), name="replica-pages", daemon=True).start()
        self._lines[source].asks.put(asked)
        self._lines[source].waker.wake()

    def close(self) -> None:
        """Threads end; what they were asked for has no answer."""
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
                self._hang_up(line)
        self._hang_up(line)
        line.selector.close()
        line.waker.close()

    def _ask_all(self, line: _Line) -> bool:
        """-> is this line closed?"""
        while not line.asks.empty():
            asked = line.asks.get()
            if asked is None:
                return True
            line.asked[asked.number] = time.monotonic() + ANSWER_S
            line.link = line.link or self._greet(line, line.asked[asked.number])
            line.link.send(asked)
        return False

    def _listen(self, line: _Line) -> None:
        """Handle frames until none comes, a question waits, or no time is left."""
        until_s = min(line.asked.values(), default=time.monotonic() + KEPT_S)
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise LinkLost(f"no answer in {ANSWER_S:g} s")
        for frame in _frames(line, left_s):
            if isinstance(frame, PagesSent) and line.asked.pop(frame.number, None) is not None:
                self._measure(line, frame)
                self._came(frame.number, frame)
        if line.link is None or not line.link.partial:
            line.began_s = None
        if line.link is not None and not line.asked and time.monotonic() >= until_s:
            self._hang_up(line)

    def _measure(self, line: _Line, frame: PagesSent) -> None:
        seconds = time.monotonic() - (line.began_s or 0.0)
        size = sum(len(page.data) for page in frame.pages)
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
        raise LinkLost(f"no answer in {ANSWER_S:g} s")

    def _hang_up(self, line: _Line) -> None:
        """Close the connection; the questions asked over it get no answer."""
        if line.link is not None:
            line.link.close()
        line.link = line.began_s = None
        numbers = [*line.asked]
        line.asked.clear()
        for number in numbers:
            self._came(number, None)


def _frames(line: _Line, left_s: float) -> list[Frame]:
    """Next frames, heartbeats included; none where a question waits or nothing comes."""
    frames: list[Frame] = []
    for key, events in line.selector.select(left_s):
        if key.fileobj is line.waker:
            line.waker.clear()
        elif line.link is not None:
            begin_s = time.monotonic()
            frames = line.link.exchange(events)
            if line.began_s is None and (frames or line.link.partial):
                line.began_s = begin_s
    return frames
