"""Trials of new grammars: one at a time, and one for each grammar, however many requests wait for it.

Knows: futures, threads, how many grammars may wait.
Must not know: what a trial does, machines, requests.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from twostroke.types.errors import Overloaded, TwostrokeError
from twostroke.types.grammar import Grammar

Sources = tuple[str, ...]
"""Grammars in the compiler's language; a text must fit all of them."""
Try = Callable[[Grammar], Sources]
"""A grammar to its tried sources; raises what is wrong with it."""


class _Trial:
    """One trial and the futures of those that wait for it."""

    def __init__(self, at_work: Future[Sources]) -> None:
        self.at_work = at_work
        self.waiting: list[Future[Sources]] = []


class Trials:
    """Tries grammars for any number of threads; one thread of its own runs `try_one`.

    waiting: grammars that may wait to be tried, the one at work among them. retry_s: in the error of a refusal.
    """

    def __init__(self, try_one: Try, waiting: int, retry_s: float) -> None:
        self._try_one = try_one
        self._waiting = waiting
        self._retry_s = retry_s
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar-trial")
        self._lock = threading.Lock()
        self._running: dict[Grammar, _Trial] = {}

    def join(self, grammar: Grammar) -> Future[Sources]:
        """Begin the trial of a grammar, or wait for the one that has begun. Each caller has a future of its own.

        Raises Overloaded where too many other grammars wait. A trial without a waiting request is not begun.
        """
        made: Future[Sources] = Future()
        with self._lock:
            trial = self._running.get(grammar)
            if trial is None:
                if len(self._running) >= self._waiting:
                    raise Overloaded(
                        "Too many grammars wait to be compiled.", retry_after_s=self._retry_s, fix="Try again later."
                    )
                trial = self._running[grammar] = _Trial(self._pool.submit(self._run, grammar))
            trial.waiting.append(made)
        made.add_done_callback(lambda done: self._left(grammar, done))
        return made

    def before(self, work: Callable[[], object]) -> None:
        """Do this in the thread of the trials, before those that come later."""
        self._pool.submit(work)

    def close(self, last: Callable[[], object]) -> None:
        """Finish what waits, call `last` in the thread of the trials, end."""
        self._pool.submit(last)
        self._pool.shutdown(wait=True, cancel_futures=False)

    def _run(self, grammar: Grammar) -> Sources:
        try:
            sources = self._try_one(grammar)
        except BaseException as error:
            for made in self._ended(grammar):
                # Each request gets its own error, because it names the request's own field.
                made.set_exception(copy.copy(error) if isinstance(error, TwostrokeError) else error)
            raise
        for made in self._ended(grammar):
            made.set_result(sources)
        return sources

    def _ended(self, grammar: Grammar) -> list[Future[Sources]]:
        """The requests that still wait; from now on the next request for this grammar begins a new trial."""
        with self._lock:
            trial = self._running.pop(grammar)
        return [made for made in trial.waiting if made.set_running_or_notify_cancel()]

    def _left(self, grammar: Grammar, made: Future[Sources]) -> None:
        """Give the place back where the last one that waited was cancelled before the trial began."""
        if not made.cancelled():
            return
        with self._lock:
            trial = self._running.get(grammar)
            if trial is None or made not in trial.waiting:
                return
            trial.waiting.remove(made)
            if not trial.waiting and trial.at_work.cancel():
                del self._running[grammar]
