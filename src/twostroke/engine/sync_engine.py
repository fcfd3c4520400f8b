"""The engine as a plain loop: it steps while the caller takes pieces.

Several threads may take pieces at once: a thread without a piece steps the engine, and each step serves all requests.
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from twostroke.engine.answers.collect import Collector
from twostroke.engine.stepper import Stepper
from twostroke.engine.turns import FairLock
from twostroke.types.errors import EngineStopped
from twostroke.types.output import Delta, GenerationOutput, Prompt


class SyncEngine:
    """An engine for any number of threads and open streams: each step serves all streams, and pieces wait for their
    readers."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._session = stepper.session
        self._turns = FairLock()
        # The fields below are only touched by the thread that has the turn.
        self._mail: dict[str, deque[Delta]] = {}
        self._num_steps = 0
        self._reader_back_s = 0.0
        self._stopped = False

    def generate(self, prompts: Sequence[Prompt]) -> list[GenerationOutput]:
        """Answer all prompts, batched, and return their outputs in the order of the prompts.

        Raises InvalidRequest before anything runs. A completion that failed has FinishReason.ERROR and its error.
        """
        collectors: dict[str, Collector] = {}
        named = self._named(prompts)
        for prompt in named:
            collectors[prompt.request_id or ""] = Collector(prompt)
        for delta in self._drive(named):
            collectors[delta.request_id].add(delta)
        return [collector.output() for collector in collectors.values()]

    def stream(self, prompts: Sequence[Prompt]) -> Iterator[Delta]:
        """Yields the pieces of all prompts as they come. `Delta.request_id` is the id of the piece's prompt (prompts
        without an id get one).

        Raises InvalidRequest at once. Closing the iterator, or Ctrl-C, aborts what is left and frees its pages.
        """
        return self._watched(self._drive(self._named(prompts)))

    def gauges(self) -> Any:
        """Returns the scheduler's present counts of requests and pages (Gauges)."""
        return self._stepper.gauges()

    def stop(self) -> None:
        """Wait for the present step. Every later step raises EngineStopped, in the threads that need it."""
        with self._turns:
            self._stopped = True

    def _named(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        ready = [self._session.prepare(prompt) for prompt in prompts]
        return [self._session.named(prompt) for prompt in ready]

    def _watched(self, deltas: Generator[Delta]) -> Iterator[Delta]:
        """Yields the pieces. The engine stands still while its readers have pieces: the ledger must not count that time
        as the engine's own."""
        clock = self._stepper.clock
        with contextlib.closing(deltas):
            for delta in deltas:
                left_s, steps_then = clock(), self._num_steps
                yield delta
                back_s = clock()
                with self._turns:
                    if self._num_steps == steps_then:  # else another thread stepped meanwhile
                        self._session.ledger.away(back_s - max(left_s, self._reader_back_s))
                        self._reader_back_s = back_s

    def _drive(self, prompts: list[Prompt]) -> Generator[Delta]:
        open_counts: dict[str, int] = {}
        try:
            with self._turns:
                self._check_running()
                for prompt in prompts:
                    request_id = self._stepper.submit(prompt)
                    open_counts[request_id] = prompt.params.n
                    self._mail[request_id] = deque()
            while open_counts:
                for delta in self._taken(open_counts):
                    if delta.finish_reason is not None:
                        open_counts[delta.request_id] -= 1
                        if open_counts[delta.request_id] == 0:
                            del open_counts[delta.request_id]
                            self._turns.soon(functools.partial(self._mail.pop, delta.request_id, None))
                    yield delta
        finally:
            if open_counts:
                self._turns.soon(functools.partial(self._abort, tuple(open_counts)))

    def _abort(self, request_ids: tuple[str, ...]) -> None:
        for request_id in request_ids:
            self._mail.pop(request_id, None)
            self._stepper.abort(request_id)

    def _taken(self, wanted: dict[str, int]) -> list[Delta]:
        """Returns the waiting pieces of these requests, after a step when there are none."""
        with self._turns:
            taken = self._waiting(wanted)
            if taken:
                return taken
            self._check_running()
            self._num_steps += 1
            deltas = self._stepper.step()
            if deltas is None:
                raise EngineStopped("The engine can plan no step, and a stream is still open.", why="This is a defect.")
            for delta in deltas:
                if delta.request_id in self._mail:
                    self._mail[delta.request_id].append(delta)
            return self._waiting(wanted)

    def _check_running(self) -> None:
        if self._stopped:
            raise EngineStopped("The engine was closed.", why="A closed engine answers nothing.", fix="Make a new one.")

    def _waiting(self, wanted: dict[str, int]) -> list[Delta]:
        taken: list[Delta] = []
        for request_id in wanted:
            mail = self._mail[request_id]
            taken.extend(mail)
            mail.clear()
        return taken
