"""The executor for real models: runs a plan on a model and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from twostroke.engine.faults.isolate import joined
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.runner.forward import Forward
from twostroke.runner.hidden_rows import StepReader
from twostroke.runner.pool_rows import NOT_FINITE, pool_rows
from twostroke.runner.samplers import HostSampler, StepSampler
from twostroke.runner.step_inputs import write_plan
from twostroke.types.images import NOTHING_ENCODED
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.result import StepResult, TokenLogprob

if TYPE_CHECKING:
    from twostroke.runner.images.span_runner import ImageSteps


def no_delay() -> float:
    """Returns 0. It stands for the time in which other processes kept this thread off the processor, where that is not
    measured."""
    return 0.0


class ModelRunner:
    """Runs the plans of the engine on a real model, one step at a time. Satisfies `engine.executor.Executor`.

    delay: returns the seconds, since its last call, in which this thread was ready to run but the processor ran
    something else. sampler: runs the model and chooses tokens; the default samples on the host from logits that
    `forward` returns. readers: objects that copy values out of the model's memory after each step, such as hidden
    states. images: works on images; None for a model that does not see.
    """

    def __init__(
        self,
        forward: Forward,
        memory: StepMemory,
        clock: Callable[[], float],
        delay: Callable[[], float] = no_delay,
        sampler: StepSampler | None = None,
        readers: Sequence[StepReader] = (),
        images: ImageSteps | None = None,
    ) -> None:
        self._images = None if images is None else images.rows
        self._spans = None if images is None else images.spans
        self._readers = readers
        self._forward, self._memory, self._clock, self._delay = forward, memory, clock, delay
        self._sampler = sampler or HostSampler(forward)

    def execute(self, plan: Plan) -> StepResult:
        """Runs one forward pass. If the plan also has rows of an image that see each other, it then computes the
        planned pieces of these rows. For each sequence that samples, returns the accepted draft tokens, and one more
        token.

        A fault in sampling one request ends only that request. Raises BackendError where a kernel refuses its operands.
        """
        if plan.span is None or self._spans is None:
            return self._step(plan)
        step = [self._step(plan)] if plan.sequences else []
        return joined([*step, self._spans.execute(plan.span)])

    def _step(self, plan: Plan) -> StepResult:
        started_s = self._clock()
        self._memory.copy_states(plan.state_copies)
        self._memory.copy_pages(plan.page_copies)
        sizes = write_plan(plan, self._memory)
        done = NOTHING_ENCODED if self._images is None else self._images.write(plan, sizes)
        found = self._sampler.forward(plan, sizes)
        model_end_s = self._clock()
        sampled, failed = self._sampler.choose(plan, found)
        for reader in self._readers:
            reader.read(plan, sizes, sampled)
        scored = self._score(plan, sizes)
        pooled = pool_rows(plan, self._forward, sizes)
        failed |= {
            name: NOT_FINITE for name, rows_sum in pooled.items() if not np.isfinite(np.frombuffer(rows_sum)).all()
        }
        model_s, sampling_s = model_end_s - started_s, self._clock() - model_end_s
        return StepResult(
            *(sampled, failed, model_s, sampling_s, scored),
            delayed_s=self._delay(),
            pooled=pooled,
            encodes=done,
        )

    def _score(self, plan: Plan, sizes: StepSizes) -> dict[str, tuple[TokenLogprob, ...]]:
        """Returns the log probabilities of prompt tokens. It computes as many rows at a time as there is memory for. It
        must run after sampling, because it overwrites the logits."""
        scored: dict[str, tuple[TokenLogprob, ...]] = {}
        first_row = 0
        for sequence in plan.sequences:
            if sequence.scores and sequence.request.pooling is None:
                shift = first_row - sequence.start
                scored[sequence.request.request_id] = tuple(self._scores(sequence, shift, sizes))
            first_row += sequence.num_tokens
        return scored

    def _scores(self, sequence: PlannedSequence, shift: int, sizes: StepSizes) -> Iterator[TokenLogprob]:
        """Yields the log probabilities of a sequence. shift: the number that is added to a position of the sequence to
        get its row of the batch."""
        num_top, prompt = sequence.request.params.prompt_logprobs or 0, sequence.request.prompt_token_ids
        step = self._forward.max_rows
        for start in range(sequence.scores.start, sequence.scores.stop, step):
            positions = range(start, min(start + step, sequence.scores.stop))
            rows = np.arange(positions.start, positions.stop, dtype=np.int32) + np.int32(shift)
            yield from self._sampler.score(rows, prompt[positions.start + 1 : positions.stop + 1], num_top, sizes)
