"""No request starves: the lemma of docs/proofs/no-starvation.md is checked at each step, and the bound at each end."""

from __future__ import annotations

from dataclasses import dataclass, field

from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.plan import Plan


@dataclass
class Wait:
    """The wait of one live request. ahead: the requests that ran in a step while this one waited."""

    sequence: Sequence
    steps: int = 0
    ahead: set[Sequence] = field(default_factory=set)


class Fairness:
    """Inspects the scheduler between `schedule` and `commit`: `watch(plan)`."""

    def __init__(self, scheduler: Scheduler, page_tokens: int) -> None:
        self._queues = scheduler._queues
        self._page_tokens = page_tokens
        self._waits: dict[Sequence, Wait] = {}
        self._admissions: dict[Sequence, int] = {}
        self.max_steps = 0

    def watch(self, plan: Plan) -> None:
        """Checks a step that is about to run."""
        running, waiting = self._queues.running, self._queues.waiting
        by_id = {each.request.request_id: each for each in (*running, *waiting)}
        self._check_victims([by_id[each.request_id] for each in plan.preemptions])
        self._check_order(running, waiting, {each.request.request_id: each.start for each in plan.sequences})
        planned = {by_id[each.request.request_id] for each in plan.sequences}
        for sequence in by_id.values():
            wait = self._waits.setdefault(sequence, Wait(sequence))
            wait.steps += 1
            if sequence.admission is None:
                wait.ahead.update(running)
            assert planned & (wait.ahead | {sequence}), f"nothing that {sequence.request.request_id} waits for runs"
        self._admissions = {each: each.admission or 0 for each in running}
        for ended in [each for each in self._waits if each.request.request_id not in by_id]:
            self._check_bound(self._waits.pop(ended))

    def close(self) -> None:
        """Checks, after the last step, that every request has ended."""
        for wait in self._waits.values():
            self._check_bound(wait)

    def _check_victims(self, victims: list[Sequence]) -> None:
        """Checks each sequence that gives its pages back. The sequences that go on were admitted before it, or have a
        better rank.

        A sequence that begins again because its step failed took nothing from others.
        """
        for victim in (each for each in victims if not each.alone_before):
            admission = self._admissions.get(victim)
            for other in self._queues.running if admission is not None else ():
                before = (other.admission or 0) < (admission or 0)
                assert before or rank(other) < rank(victim), f"{victim.request.request_id} gave way to a later one"

    def _check_order(self, running: list[Sequence], waiting: list[Sequence], starts: dict[str, int]) -> None:
        """Checks that no sequence is admitted before one of better rank, unless that one waits for a sibling's pages.

        starts: the computed tokens of the planned sequences before this step.
        """
        new = [each for each in running if each not in self._admissions]
        for passed in waiting:
            held = any(
                other.request.group_id == passed.request.group_id
                and starts.get(other.request.request_id, other.computed) < self._shared(other)
                for other in running
            )
            if not held:
                assert all(rank(each) < rank(passed) for each in new), f"{passed.request.request_id} was overtaken"

    def _shared(self, sequence: Sequence) -> int:
        return len(sequence.request.prompt_token_ids) // self._page_tokens * self._page_tokens

    def _check_bound(self, wait: Wait) -> None:
        bound = sum(self._positions(each) for each in wait.ahead | {wait.sequence})
        assert wait.steps <= bound, f"{wait.sequence.request.request_id} lived {wait.steps} steps, and {bound} suffice"
        self.max_steps = max(self.max_steps, wait.steps)

    def _positions(self, sequence: Sequence) -> int:
        request = sequence.request
        return (1 + sequence.num_preemptions) * (len(request.prompt_token_ids) + request.max_tokens)


def rank(sequence: Sequence) -> tuple[int, int]:
    """The promised order: priority, then arrival. It is written again here, so that a change in the scheduler is
    noticed."""
    return (sequence.request.priority, sequence.number)
