"""Medusa heads guess the next tokens from hidden states of the last step.

A token is sampled from a head's logits as the model will sample from its own: with the same parameters and the same
draw for the same position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from twostroke.engine.speculate.proposer import GuessWanted
from twostroke.models.common.blocks.heads.medusa import MedusaProgram
from twostroke.ops.attention.token_weights import Weigh
from twostroke.ops.device_memory import HOST, DeviceMemory
from twostroke.ops.operands import F32Array
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.runner.forward import Forward
from twostroke.runner.hidden_rows import LastRows
from twostroke.runner.sampling.sampler import sample
from twostroke.runner.sampling.verify import FAULTS
from twostroke.types.plan import PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.weights.loaded import ModelWeights

ROWS = 32
"""The most sequences for which one call of the heads' program makes guesses. The bound keeps the logits of all heads
small."""


def medusa_memory(made: MedusaProgram, weights: ModelWeights, device: DeviceMemory = HOST) -> StepMemory:
    """Makes the memory of the heads' program. weights: the weights of the heads, and the model's output matrix where
    the heads read it. device: the memory that holds the weights."""
    sizes = MemorySizes((), PAGE_TOKENS, ROWS, 1)
    return StepMemory(made.program, weights.matrices, weights.vectors, KVKind.F32, sizes, device)


class MedusaHeads:
    """Makes guesses with a model's Medusa heads, one token for each head. Satisfies `speculate.heads.GuessingHeads`.
    forward: runs the heads' program, whose inputs are in `memory`. hidden: the model's hidden states that the heads
    read."""

    def __init__(
        self, made: MedusaProgram, forward: Forward, memory: StepMemory, hidden: LastRows, weigh: Weigh
    ) -> None:
        self._made, self._forward, self._memory = made, forward, memory
        self._hidden, self._weigh = hidden, weigh
        self.num_heads = made.num_heads

    def run_once(self) -> None:
        """Runs the heads on one row and discards the result, so that a caller can time the heads."""
        sizes = StepSizes(1, 0, 0)
        self._memory.fill(self._made.hidden, sizes, np.zeros((1, self._made.hidden.width), np.float32))
        self._forward(sizes)

    def guess(self, wanted: Sequence[GuessWanted]) -> list[list[int]]:
        states = [self._hidden.of(each.request.request_id, len(each.known)) for each in wanted]
        ready = [(index, state) for index, state in enumerate(states) if state is not None]
        found: list[list[int]] = [[] for _ in wanted]
        for first in range(0, len(ready), ROWS):
            part = ready[first : first + ROWS]
            sizes = StepSizes(len(part), 0, 0)
            self._memory.fill(self._made.hidden, sizes, np.stack([state for _, state in part]))
            logits = self._forward(sizes).reshape(len(part), self.num_heads, -1)
            for row, (index, _) in enumerate(part):
                found[index] = self._sampled(logits[row], wanted[index])
        return found

    def _sampled(self, logits: F32Array, wanted: GuessWanted) -> list[int]:
        """Samples one guess from each head's logits (heads, V), for one sequence. The guesses end before an end
        token."""
        request, text = _without_logprobs(wanted.request), list(wanted.known)
        mask, guessed = request.mask, len(request.prompt_token_ids)
        try:
            for row in logits[: wanted.most]:
                planned = PlannedSequence(request, len(text) - 1, 1, text, (), True, Role.DECODE)
                token_id = sample(self._weigh, row, planned).token_id
                if token_id in request.end_token_ids:
                    break
                text.append(token_id)
                if mask is not None:
                    mask.feed(token_id)
        except FAULTS:
            pass  # the fault appears when the model itself computes that token
        finally:
            if mask is not None:
                mask.rewind(len(wanted.known) - guessed)
        return text[len(wanted.known) :]


def _without_logprobs(request: Request) -> Request:
    params = request.params
    if params.logprobs is None:
        return request
    return replace(request, params=replace(params, logprobs=None))
