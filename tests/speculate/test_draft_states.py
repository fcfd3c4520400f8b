"""draft with states and windows: it guesses what a draft guesses that reads the whole text anew."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.random_checkpoint import write_random
from tests.models.families.stored import config_of
from tests.speculate.test_real_engine import AllOfThem
from tests.speculate.texts import request
from twostroke import LLM
from twostroke.assets import spark_path
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.speculate.draft import DraftProposer
from twostroke.engine.speculate.proposer import NO_GUESS, GuessWanted
from twostroke.types.cache_pools import CachePools, PagePoolSize
from twostroke.types.output import Prompt
from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken, StepResult
from twostroke.types.sampling.sampling_params import SamplingParams

PAGE = 4
POOLS = {
    "states": CachePools((), 5, 64),
    "states and pages": CachePools((PagePoolSize(60),), 5, 64),
    "states and a window": CachePools((PagePoolSize(60), PagePoolSize(60, window=6)), 5, 24),
    "a window": CachePools((PagePoolSize(24, window=6),), 0, 8),
}


class Recurrent:
    """An executor whose token depends on all rows that its slot has seen, and on the contents of its windows' pages."""

    def __init__(self, pools: CachePools) -> None:
        self.pools = pools
        self.slots: list[tuple[int, ...]] = [(-1,)] * pools.state_slots
        self.pages: list[dict[int, int]] = [{} for _ in pools.pages]
        self.fails = False

    def execute(self, plan: Plan) -> StepResult:
        if self.fails:
            raise RuntimeError("broken")
        for source, target in plan.state_copies:
            self.slots[target] = () if source < 0 else self.slots[source]
        sampled = {}
        for each in plan.sequences:
            end = each.start + each.num_tokens
            new = tuple(each.known_token_ids[each.start : end])
            if self.slots:
                assert self.slots[each.state_slot] == tuple(each.known_token_ids[: each.start])
                self.slots[each.state_slot] += new
            for pages, table, size in zip(self.pages, each.tables, self.pools.pages, strict=True):
                pages.update(
                    {table[at // PAGE] * PAGE + at % PAGE: each.known_token_ids[at] for at in range(each.start, end)}
                )
                seen = range(max(0, each.start - size.window + 1) if size.window else 0, end)
                assert [pages[table[at // PAGE] * PAGE + at % PAGE] for at in seen] == [
                    each.known_token_ids[at] for at in seen
                ]
            if each.samples:
                sampled[each.request.request_id] = (SampledToken(hashed(each.known_token_ids[:end])),)
        return StepResult(sampled)


def hashed(text: list[int]) -> int:
    return hash(tuple(text)) % 5


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_accepted_its_guess_is_that_of_the_whole_text(pools: str, seed: int) -> None:
    """Requests have common beginnings, and there are more of them than slots. Some guesses are right, there are faults,
    and one text comes twice."""
    rng, model, faults = random.Random(seed), Recurrent(POOLS[pools]), list[Exception]()
    cache = CacheManager(POOLS[pools], PAGE)
    draft = DraftProposer(model, cache, 3, 2000, lambda: 0.0, 1e-3, faults.append)
    texts = {name: [1, 2, 3, 4, 5, 6, 7, 8, 9][: rng.randrange(3, 10)] for name in "abcdef"}
    requests = {name: request(name, prompt=text) for name, text in texts.items()}
    guessed = 0
    for turn in range(150):
        names = rng.sample("abcdef", rng.randrange(1, 4))
        model.fails = turn % 50 == 20
        guesses = draft.propose([GuessWanted(requests[name], texts[name], rng.randrange(1, 6)) for name in names])
        for name, guess in zip(names, guesses, strict=True):
            expected = list(texts[name])
            for _ in guess.token_ids:
                expected.append(hashed(expected))
            assert list(guess.token_ids) == expected[len(texts[name]) :]
            guessed += len(guess.token_ids)
            if rng.random() < 0.1:
                continue  # the step failed, so it is asked for the same text again
            texts[name] += guess.token_ids[: rng.randrange(len(guess.token_ids) + 1)]
            texts[name].append(rng.randrange(5))
            if len(texts[name]) > 70:
                draft.ended(requests[name], texts[name])
                texts[name] = texts[name][:6]
        cache.check()
    assert guessed > 200 and len(faults) == 3
    for name in texts:
        draft.ended(requests[name], texts[name])
    assert cache.pages_used == 0
    assert cache.states is None or cache.states.slots_left == POOLS[pools].state_slots


def test_without_a_slot_for_a_copy_it_guesses_one_token() -> None:
    pools = CachePools((), 2, 64)
    draft = DraftProposer(Recurrent(pools), CacheManager(pools, PAGE), 3, 2000, lambda: 0.0, 1e-3, lambda _: None)
    asked = [GuessWanted(request(name), [1, 2, 3], 4) for name in "abc"]
    assert [len(each.token_ids) for each in draft.propose(asked)] == [1, 1, 0]
    draft.ended(asked[0].request, [])
    assert draft.propose(asked[2:]) != [NO_GUESS]  # the slot of "b", for which no guess is wanted, is taken


KINDS = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 1.0, "seed": 5, "logprobs": 1}}


@pytest.mark.parametrize("family", ["mamba2", "falcon-h1", "qwen3-next", "gemma3"])
def test_an_engine_with_such_a_draft_gives_the_same_bits(family: str, tmp_path: Path) -> None:
    """The draft is the model. So every guess is right if its states and windows are right, bit for bit."""
    vocabulary = json.loads((spark_path() / "config.json").read_text())["vocab_size"]
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    write_random({**config_of(family), **special, "vocab_size": vocabulary}, tmp_path)
    shutil.copy(spark_path() / "tokenizer.json", tmp_path / "tokenizer.json")
    options = {"weights": "int8", "threads": 1, "context": 256, "max_sequences": 4}
    with LLM(str(tmp_path), speculate=f"draft:{tmp_path}", **options) as llm:
        guesser = llm._built.guesser
        guesser._limiter = AllOfThem(guesser._limiter.times)
        encode = llm._built.tokenizer.encode_prompt
        texts = [
            tuple(encode(text)) for text in ("The cache holds pages of sixteen positions.", "A state", "A state of")
        ]
        for kind in KINDS.values():
            params = SamplingParams(max_tokens=40, **kind)
            found = [
                [
                    replace(each.completions[0], timings=None, num_preemptions=0)
                    for each in llm.engine.generate([Prompt(text, params, speculate=way) for text in texts])
                ]
                for way in ("off", "draft")
            ]
            assert found[0] == found[1]
        assert guesser.totals.guessed == guesser.totals.accepted > 100
        assert llm._built.cache.pages_used == 0
