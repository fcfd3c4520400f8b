"""Steps that are begun early on the emulated device. The answers are those of whole steps, bit for bit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.cuda.emulator.fake import controls, same_level
from tests.tiers import TIER, rest_daily
from twostroke import LLM, SamplingParams
from twostroke.assembly import engine as assemble
from twostroke.assembly.find import find_model
from twostroke.runner.device.early_runner import EarlyRunner
from twostroke.types.errors import ConfigError
from twostroke.types.grammar import Grammar
from twostroke.types.output import Delta, Prompt

SMALL = {"context": "128", "max_step_tokens": "48", "max_sequences": "4", "kv_memory": "2MB", "device": "cuda"}
FORMATS = {"weights": "int8", "kv_format": "int8"}
PROMPTS = [list(range(5, 45)), list(range(5, 40)), [9, 8, 7]]
PLAIN = (
    SamplingParams(temperature=0.9, seed=7, max_tokens=9, logprobs=2, ignore_eos=True),
    SamplingParams(temperature=0.0, max_tokens=4, logit_bias={4: 1.0}),
    SamplingParams(temperature=0.8, seed=2, max_tokens=7, top_p=0.9, min_tokens=3, stop=["e"]),
)
OTHERS = (
    SamplingParams(temperature=0.7, seed=5, max_tokens=10, repetition_penalty=1.2, frequency_penalty=0.4),
    SamplingParams(temperature=0.6, seed=3, max_tokens=10, grammar=Grammar.regex(r"([a-z]{1,6} ){3,9}end")),
    SamplingParams(temperature=1.0, seed=4, max_tokens=6, prompt_logprobs=1, n=2),
    SamplingParams(temperature=0.9, seed=8, max_tokens=12, bad_token_ids=((7, 8),), logprobs=0),
)


def early_runner(built: assemble.Heart) -> EarlyRunner:
    """The executor of plans, and the objects that it needs."""
    found: Any = built.stepper.loop.executor
    while not isinstance(found, EarlyRunner):
        found = found._inner
    return found


def answers(llm: LLM) -> list[Any]:
    made = llm.generate(PROMPTS, list(PLAIN))
    return [(each.token_ids, each.logprobs, each.text, each.finish_reason) for out in made for each in out.completions]


@pytest.mark.usefixtures("fake")
def test_early_steps_change_no_bit() -> None:
    level = same_level()
    if level is None:
        pytest.skip("this CPU has no level with fused multiply-add: nothing has the bits of the kernels")
    with LLM("spark", **{**SMALL, **FORMATS, "device": "cpu", "cpu_level": level}) as llm:
        expected = answers(llm)
    with LLM("spark", **SMALL, **FORMATS) as llm:
        before = [getattr(controls(), f"fake_copies_{way}")() for way in ("up", "down")]
        assert answers(llm) == expected
        after = [getattr(controls(), f"fake_copies_{way}")() for way in ("up", "down")]
        runner, steps = early_runner(llm._built), llm._built.session.ledger.num_steps
    assert runner.kept >= steps > 0 and runner.dropped <= 3, "how many steps there are follows from the answers"
    copies = [b - a for a, b in zip(before, after, strict=True)]
    assert copies[0] == copies[1] <= steps + 3, "one up and one down a step, whatever was begun early"
    assert controls().fake_used() == 0


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("options", [{"device": "cpu"}, {"max_sequences": "4"}])
def test_early_steps_are_for_devices(options: dict[str, str]) -> None:
    settings = find_model("spark", {**SMALL, **options}).resolver.resolved()
    assert settings["early_steps"] == ("off" if "device" in options else "on")
    if "device" in options:
        with pytest.raises(ConfigError, match="--early-steps on is not possible"):
            find_model("spark", {**SMALL, **options, "early_steps": "on"})


def some_requests() -> tuple[list[SamplingParams], int]:
    """The kinds of requests to draw from, and their number: each kind once; in a daily run, ten requests of two of each
    kind."""
    return ([*PLAIN, *OTHERS] * 2, 10) if TIER.daily else ([*PLAIN, *OTHERS], len(PLAIN) + len(OTHERS))


def played(seed: int, **options: str) -> dict[str, Any]:
    """The results of requests of all kinds that came and went between the steps of one engine."""
    dice, got = random.Random(seed), dict[str, list[Delta]]()
    with assemble.build_sync("spark", {**SMALL, **options}) as built:
        stepper, open_ids, waiting = built.stepper, list[str](), dice.sample(*some_requests())
        while waiting or stepper.has_work:
            while waiting and (not stepper.has_work or dice.random() < 0.3):
                tokens = tuple(range(5, dice.choice((9, 30, 60))))
                open_ids.append(stepper.submit(Prompt(tokens, waiting.pop(), request_id=f"r{len(open_ids)}")))
            deltas = list(stepper.step() or ())
            if dice.random() < 0.1:
                deltas += stepper.abort(dice.choice(open_ids))
            for delta in deltas:
                got.setdefault(f"{delta.request_id}/{delta.index}", []).append(delta)
        built.cache.check()
        gauges = built.stepper.gauges()
        assert (gauges.running, gauges.waiting, gauges.pages_used) == (0, 0, 0)
    return {name: joined(deltas) for name, deltas in got.items()}


def joined(deltas: list[Delta]) -> tuple[Any, ...]:
    tokens = tuple(token for delta in deltas for token in delta.token_ids)
    logprobs = tuple(each for delta in deltas for each in delta.logprobs)
    prompt = tuple(each for delta in deltas for each in delta.prompt_logprobs)
    return tokens, logprobs, prompt, "".join(delta.text for delta in deltas), deltas[-1].finish_reason


@pytest.mark.slow
@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(("seed", "pool"), rest_daily([(0, "2MB"), (1, "400KB")], [(1, "400KB")]))
def test_all_kinds_of_requests_together(seed: int, pool: str) -> None:
    """The requests have stop strings, ends within steps begun early, cancellations, masks, penalties and guesses, and
    the pool is full."""
    options = {"kv_memory": pool, "speculate": ("off", "suffix")[seed % 2]}
    assert played(seed, **options) == played(seed, early_steps="off", **options)
