"""Trials of new grammars: each grammar is first compiled in a process with limits, once, however many requests wait for
it.

There are two threads with a process each (lanes): a quick one, which gives a grammar little time, and a slow one. A
grammar that needs more goes to the slow lane, so that an easy grammar does not wait for hard ones. In a lane the newest
of the shortest texts is first. Where too many wait, the oldest of the longest texts is refused: a flood of hard
grammars is refused, and a short grammar does not wait for it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from twostroke.system.starting import MORE_THREADS, NO_THREAD, begun
from twostroke.types.errors import BackendError, HelperNotStarted, Overloaded, TwostrokeError
from twostroke.types.grammar import Grammar

Sources = tuple[str, ...]
"""Grammars in the compiler's language; a text must fit all of them."""


class TooHard(Exception):
    """Raised by the quick trial process when a grammar needs more time than this process gives. `Trials` then tries the
    grammar in the slow process."""


class Lane(Protocol):
    """Compiles grammars on trial, in one thread of `Trials`; there is a quick lane and a slow one."""

    def start(self) -> None:
        """Called in the lane's thread before the first trial: starts its process, so that the first trial does not
        wait."""

    def sources(self, grammar: Grammar) -> Sources:
        """Compiles a grammar on trial, and returns its sources in llguidance's Lark. Raises InvalidRequest with the
        fault of the grammar. The quick lane raises TooHard where the grammar needs more time, so that the slow lane
        tries it."""

    def close(self) -> None:
        """Ends the process of the lane; no call comes after this one."""


class _Trial:
    """A grammar that is tried or waits for it, with the futures of the requests that wait for the result."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.waiting: list[Future[Sources]] = []

    def size(self) -> int:
        """The number of bits of the length of the grammar's text: grammars whose lengths are nearly equal have the same
        size."""
        return len(self.grammar.text).bit_length()


class Trials:
    """Compiles new grammars on trial, each in a process with limits, for any number of threads. lanes: first the one
    with little time for each grammar, then the one for grammars that need more; each has a thread and a process.

    waiting: the number of grammars that may wait for each lane. retry_s: how many seconds later a refused request may
    be sent again.
    """

    def __init__(self, lanes: Sequence[Lane], waiting: int, retry_s: float) -> None:
        self._lanes = tuple(lanes)
        self._waiting = waiting
        self._retry_s = retry_s
        self._changed = threading.Condition()  # guards all fields below
        self._trials: dict[Grammar, _Trial] = {}  # contains the trials at work, too
        self._stacks: list[list[_Trial]] = [[] for _ in self._lanes]
        self._threads: list[threading.Thread] = []
        self._closed = False

    def start(self) -> None:
        """Starts the threads, which start their processes. Raises BackendError where the system begins no more threads.
        """
        with self._changed:
            while not self._closed and (place := len(self._threads)) < len(self._lanes):
                name = f"grammar-trial-{place}"
                thread = threading.Thread(target=self._run, args=(place,), name=name, daemon=True)
                if not begun(thread):
                    raise HelperNotStarted("No thread for grammars can begin.", why=NO_THREAD, fix=MORE_THREADS)
                self._threads.append(thread)

    def join(self, grammar: Grammar) -> Future[Sources]:
        """Lets a new grammar be compiled on trial, or waits for the trial that has begun. Returns a future of the
        grammar's sources in the compiler's language; each caller has one of its own.

        The future raises Overloaded where too many newer grammars came. A trial without a waiting request is not begun.
        """
        self.start()
        made: Future[Sources] = Future()
        with self._changed:
            if self._closed:
                raise _closed()
            trial, refused = self._trials.get(grammar), list[Future[Sources]]()
            if trial is not None:
                trial.waiting.append(made)
            else:
                trial = self._trials[grammar] = _Trial(grammar)
                trial.waiting.append(made)  # before the push, which may refuse this trial itself
                refused = self._push(0, trial)
        _fail(refused, self._overloaded())
        made.add_done_callback(lambda done: self._left(grammar, done))
        return made

    def close(self) -> None:
        """Refuses the grammars that wait, lets running trials end, and ends the threads and their processes."""
        with self._changed:
            self._closed = True
            waiting = [trial for stack in self._stacks for trial in stack]
            for stack in self._stacks:
                stack.clear()
            refused = [future for trial in waiting for future in self._ended(trial)]
            self._changed.notify_all()
        _fail(refused, _closed())
        for thread in self._threads:
            thread.join()

    def _push(self, place: int, trial: _Trial) -> list[Future[Sources]]:
        """Puts a grammar into the queue of the quick or the slow process. place: the index of that process. If the
        queue is too long, drops the longest grammar from it and returns the futures of the requests that wait for that
        grammar."""
        stack = self._stacks[place]
        stack.append(trial)
        self._changed.notify_all()
        if len(stack) <= self._waiting:
            return []
        longest = max(stack, key=_Trial.size)  # among equals, `max` returns the oldest trial
        stack.remove(longest)
        return self._ended(longest)

    def _run(self, place: int) -> None:
        lane = self._lanes[place]
        try:
            lane.start()
        except Exception:
            pass  # the first trial reports the reason; if this thread ended, each request would wait for ever
        while (trial := self._next(place)) is not None:
            self._try(place, trial)
        lane.close()

    def _next(self, place: int) -> _Trial | None:
        with self._changed:
            while not self._stacks[place]:
                if self._closed:
                    return None
                self._changed.wait()
            newest = min(reversed(self._stacks[place]), key=_Trial.size)
            self._stacks[place].remove(newest)
            return newest

    def _try(self, place: int, trial: _Trial) -> None:
        try:
            sources = self._lanes[place].sources(trial.grammar)
        except TooHard:
            with self._changed:
                refused = self._ended(trial) if self._closed else self._push(place + 1, trial)
            _fail(refused, self._overloaded())
            return
        except BaseException as error:
            with self._changed:
                waiting = self._ended(trial)
            _fail(waiting, error)
            return
        with self._changed:
            waiting = self._ended(trial)
        for made in waiting:
            made.set_result(sources)

    def _ended(self, trial: _Trial) -> list[Future[Sources]]:
        """Called when the trial of a grammar has its result, or was dropped: forgets it and returns the futures of the
        requests that still wait. The next request for this grammar then begins a new trial."""
        self._trials.pop(trial.grammar, None)
        return [made for made in trial.waiting if made.set_running_or_notify_cancel()]

    def _left(self, grammar: Grammar, made: Future[Sources]) -> None:
        """Called when a request's future is done. If the request was cancelled, and no other request waits for the
        grammar, the grammar leaves the queue."""
        if not made.cancelled():
            return
        with self._changed:
            trial = self._trials.get(grammar)
            if trial is None or made not in trial.waiting:
                return
            trial.waiting.remove(made)
            for stack in self._stacks:
                if not trial.waiting and trial in stack:
                    stack.remove(trial)
                    del self._trials[grammar]

    def _overloaded(self) -> Overloaded:
        return Overloaded(
            "Too many grammars wait to be compiled.", retry_after_s=self._retry_s, fix="Try again later."
        )


def _closed() -> BackendError:
    return BackendError("The process that compiles grammars has ended.")


def _fail(waiting: Sequence[Future[Sources]], error: BaseException) -> None:
    for made in waiting:
        # Each request gets its own error, because it names the request's own field.
        made.set_exception(copy.copy(error) if isinstance(error, TwostrokeError) else error)
