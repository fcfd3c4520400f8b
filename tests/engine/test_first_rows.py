"""Rows with two codes keep the exactness law. Chunks end among them, a step has many short texts, prompts begin with
cached pages, and the first positions of some texts are answers."""

from __future__ import annotations

import pytest

from tests.engine.test_exactness import Load, Pools, core, drive, load, pools
from tests.models.families.stored import config_of
from tests.tiers import levels
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.models.common.registry import read_model
from twostroke.ops.products.linear import FIRST_POSITIONS, MatrixOp
from twostroke.ops.program.values import POSITIONS, Size
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import KVKind

__all__ = ["load", "pools"]
FAMILY = "llama3-grouped"
PARAMS = SamplingParams(temperature=1.0, logprobs=2, prompt_logprobs=1)


def asked(name: str, prompt: tuple[int, ...]) -> Request:
    return Request(name, name, prompt, PARAMS, len(prompt), 6, frozenset(), 0.0)


@pytest.mark.parametrize("weights", ["int8", "int4", "int6"])
@pytest.mark.parametrize("step_tokens", [1, 3, 5, 64])
def test_texts_that_are_cut_among_their_first_rows(weights: str, step_tokens: int, load: Load, pools: Pools) -> None:
    assert 1 <= FIRST_POSITIONS <= 8
    loaded, level = load(FAMILY, weights), levels()[-1]
    stem = tuple(range(30, 63))
    prompts = [tuple(range(20 + size, 20 + 2 * size)) for size in range(1, 10)] + [(*stem, 5), (*stem, 6), stem]
    requests = [asked(str(index), prompt) for index, prompt in enumerate(prompts)]
    engine = core(loaded, KVKind.INT8, pools[level, 2], 40, SchedulerLimits(step_tokens, min(step_tokens, 12)))
    found, _ = drive(engine, [(index // 6, request) for index, request in enumerate(requests)])
    for request in requests:
        alone = core(loaded, KVKind.INT8, pools[level, 1], 40, SchedulerLimits(512, 1))
        assert drive(alone, [(0, request)])[0][request.request_id] == found[request.request_id]


def test_products_of_all_rows_know_positions_and_those_of_logits_do_not() -> None:
    calls = [call for call in read_model(config_of(FAMILY)).plain.calls if isinstance(call, MatrixOp)]
    assert {call.out.rows for call in calls} == {Size.TOKENS, Size.LOGIT_ROWS}
    assert all(call.positions is (POSITIONS if call.out.rows is Size.TOKENS else None) for call in calls)
