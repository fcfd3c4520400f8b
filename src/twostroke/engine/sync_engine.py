"""The engine as a plain loop: steps while somebody takes pieces.

Knows: the stepper.
Must not know: threads, event loops, HTTP.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from twostroke.engine.collect import Collector
from twostroke.engine.stepper import Stepper
from twostroke.types.errors import EngineStopped
from twostroke.types.output import Delta, GenerationOutput, Prompt


class SyncEngine:
    """For one thread. Several streams may be open: each step serves all of them, and pieces wait for their readers."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._session = stepper.session
        self._mail: dict[str, deque[Delta]] = {}

    def generate(self, prompts: Sequence[Prompt]) -> list[GenerationOutput]:
        """Answer all prompts, batched; outputs in the order of the prompts.

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
        """Pieces of all prompts as they come; `Delta.request_id` tells whose (ids are given where prompts have none).

        Raises InvalidRequest at once. Closing the iterator, or Ctrl-C, aborts what is left and frees its pages.
        """
        return self._watched(self._drive(self._named(prompts)))

    def gauges(self) -> Any:
        """The scheduler's counts."""
        return self._stepper.gauges()

    def _named(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        ready = [self._session.prepare(prompt) for prompt in prompts]
        return [self._session.named(prompt) for prompt in ready]

    def _watched(self, deltas: Generator[Delta]) -> Iterator[Delta]:
        """The engine stands still while the reader has a piece: the ledger must not take that for its own time."""
        clock, ledger = self._stepper.clock, self._session.ledger
        with contextlib.closing(deltas):
            for delta in deltas:
                left_s = clock()
                yield delta
                ledger.away(clock() - left_s)

    def _drive(self, prompts: list[Prompt]) -> Generator[Delta]:
        open_counts: dict[str, int] = {}
        try:
            for prompt in prompts:
                request_id = self._stepper.submit(prompt)
                open_counts[request_id] = prompt.params.n
                self._mail[request_id] = deque()
            while open_counts:
                for delta in self._taken(open_counts):
                    if delta.finish_reason is not None:
                        open_counts[delta.request_id] -= 1
                        if open_counts[delta.request_id] == 0:
                            del open_counts[delta.request_id], self._mail[delta.request_id]
                    yield delta
        finally:
            for request_id in open_counts:
                self._mail.pop(request_id, None)
                self._stepper.abort(request_id)

    def _taken(self, wanted: dict[str, int]) -> list[Delta]:
        """Waiting pieces of these requests, after a step where there are none."""
        taken = self._waiting(wanted)
        if taken:
            return taken
        deltas = self._stepper.step()
        if deltas is None:
            raise EngineStopped("The engine can plan no step, and a stream is still open.", why="This is a defect.")
        for delta in deltas:
            if delta.request_id in self._mail:
                self._mail[delta.request_id].append(delta)
        return self._waiting(wanted)

    def _waiting(self, wanted: dict[str, int]) -> list[Delta]:
        taken: list[Delta] = []
        for request_id in wanted:
            mail = self._mail[request_id]
            taken.extend(mail)
            mail.clear()
        return taken
