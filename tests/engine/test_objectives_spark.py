"""The real engine with objectives: the same answers, and refusals that leave nothing over."""

from __future__ import annotations

import random

import pytest

from twostroke.assembly.engine import build_sync
from twostroke.types.errors import Overloaded
from twostroke.types.output import Prompt
from twostroke.types.request import FinishReason
from twostroke.types.sampling.sampling_params import SamplingParams

ROOM = {"kv_memory": "40MB", "threads": 1}


def prompts(count: int, length: int, output: int) -> list[Prompt]:
    dice = random.Random(count)
    params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True, logprobs=0)
    return [Prompt(tuple(dice.randrange(100, 4000) for _ in range(length)), params) for _ in range(count)]


def test_objectives_change_no_answer() -> None:
    asked = prompts(5, 300, 12)
    with build_sync("spark", ROOM) as plain, build_sync("spark", {**ROOM, "ttft": "600s", "itl": "5ms"}) as kept:
        first = [output.completions[0] for output in plain.engine.generate(asked)]
        second = [output.completions[0] for output in kept.engine.generate(asked)]
    assert [(c.token_ids, c.logprobs) for c in first] == [(c.token_ids, c.logprobs) for c in second]


def test_the_plain_loop_raises_what_the_gate_refuses_and_goes_on() -> None:
    with build_sync("spark", {**ROOM, "ttft": "20ms"}) as built:
        built.engine.generate(prompts(3, 1500, 4))  # a step that was not measured refuses no request at once
        with pytest.raises(Overloaded) as caught:
            built.engine.generate(prompts(60, 1500, 4))
        assert caught.value.retry_after_s > 0
        gauges = built.engine.gauges()
        assert (gauges.running, gauges.waiting, gauges.pages_used) == (0, 0, 0)
        assert len(built.engine.generate(prompts(1, 40, 4))[0].completions[0].token_ids) == 4


def test_a_held_request_is_answered_in_time_or_refused() -> None:
    with build_sync("spark", {**ROOM, "ttft": "300ms"}) as built:
        ends = [output.completions[0] for output in built.engine.generate(prompts(60, 600, 4))]
        gauges = built.engine.gauges()
    answered = [end for end in ends if end.finish_reason is not FinishReason.ERROR]
    assert answered and all(len(end.token_ids) == 4 for end in answered)
    refused = [end for end in ends if end.finish_reason is FinishReason.ERROR]
    assert all("could not be answered in time" in (end.error or "") and not end.token_ids for end in refused)
    assert (gauges.running, gauges.waiting, gauges.pages_used) == (0, 0, 0)
