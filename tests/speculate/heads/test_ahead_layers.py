"""Several layers used once in turn: they guess what they guess when they read the whole text anew."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.speculate.texts import request
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.speculate.ahead import AheadProposer
from twostroke.engine.speculate.draft import DraftProposer
from twostroke.engine.speculate.proposer import GuessWanted
from twostroke.runner.ahead_layers import BoundLayer, LayersExecutor
from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken, StepResult

PAGE, PRIME = 4, 997


def mixed(token: int, state: int, layer: int) -> int:
    return (31 * token + 17 * state + layer) % PRIME


def hidden(name: str, position: int) -> int:
    """The model's hidden state at a position, as one number."""
    return (ord(name) * 7 + position * position) % PRIME


class Layer:
    """A memory and a runner in which each row becomes a sum over the contents of the pages up to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.kept: dict[int, int] = {}
        self.arrays: dict[str, Any] = {}

    def value(self, _value: Any, sizes: Any) -> Any:
        return self.arrays.setdefault("states", np.zeros((512, 1), np.float32))[: sizes.tokens]

    def numbers(self, _value: Any, _sizes: Any) -> Any:
        return self.arrays["rows"]

    def fill(self, value: Any, sizes: Any, rows: Any) -> None:
        self.value(value, sizes)[...] = rows

    def execute(self, plan: Plan) -> StepResult:
        states, rows, sampled = iter(self.arrays["states"][:, 0]), [], {}
        for each in plan.sequences:
            assert len(each.token_ids) == each.num_tokens
            for position, token in zip(range(each.start, each.start + each.num_tokens), each.token_ids, strict=True):
                slot = each.page_ids[position // PAGE] * PAGE + position % PAGE
                self.kept[slot] = mixed(token, int(next(states)), self.number)
                seen = [self.kept[each.page_ids[at // PAGE] * PAGE + at % PAGE] for at in range(position + 1)]
                rows.append(sum(kept * (at + 1) for at, kept in enumerate(seen)) % PRIME)
            if each.samples:
                sampled[each.request.request_id] = (SampledToken(rows[-1] % 5),)
        self.arrays["rows"] = np.array(rows, np.float32)[:, None]
        return StepResult(sampled)


class Value:
    def __init__(self, width: int) -> None:
        self.width = width


class History:
    """A history that gives each hidden state once."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}

    def take(self, request_id: str, start: int, out: Any) -> None:
        out[...] = 0.0
        for row, position in enumerate(range(start, start + len(out))):
            if position >= self.taken.get(request_id, 0):
                out[row] = hidden(request_id, position)
        self.taken[request_id] = max(self.taken.get(request_id, 0), start + len(out))

    def forget(self, request_id: str) -> None:
        self.taken.pop(request_id, None)


def expected(name: str, text: Sequence[int], layers: int, count: int) -> list[int]:
    """The guesses of the layers after the text, which they read from its beginning."""
    text, states = list(text), [hidden(name, position) for position in range(len(text) - 1)]
    for layer in range(min(layers, count)):
        made, total = [], 0
        for position, state in enumerate(states):
            total += mixed(text[position + 1 + layer], state, layer) * (position + 1)
            made.append(total % PRIME)
        text.append(made[-1] % 5)
        states = made
    return text[len(text) - min(layers, count) :]


def enter(out: Any, rows: Any) -> None:
    out[...] = rows


Made = tuple[AheadProposer, CacheManager]


def proposer(layers: int, max_rows: int, report: Callable[[Exception], None]) -> Made:
    bound = [BoundLayer(layer, layer, Value(1), Value(0)) for layer in map(Layer, range(layers))]  # type: ignore[arg-type]
    executor = LayersExecutor(bound, History(), 1, max_rows, enter)  # type: ignore[arg-type]
    cache = CacheManager(400, PAGE)
    writer = DraftProposer(executor, cache, 8, 2000, lambda: 0.0, 1e-3, report)
    return AheadProposer("mtp", writer, executor.forget, layers), cache


@pytest.mark.parametrize("layers", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_accepted_their_guess_is_that_of_the_whole_text(layers: int, seed: int) -> None:
    rng, faults = random.Random(seed), list[Exception]()
    made, cache = proposer(layers, 300, faults.append)
    texts = {
        name: [index, *(rng.randrange(5) for _ in range(rng.randrange(1, 600)))] for index, name in enumerate("abc")
    }
    requests = {name: request(name, prompt=text) for name, text in texts.items()}
    guessed = 0
    for _ in range(60):
        names = rng.sample("abc", rng.randrange(1, 4))
        most = rng.randrange(1, 6)
        guesses = made.propose([GuessWanted(requests[name], texts[name], most) for name in names])
        for name, guess in zip(names, guesses, strict=True):
            if guess.token_ids:
                assert list(guess.token_ids) == expected(name, texts[name], layers, most)
            guessed += len(guess.token_ids)
            if rng.random() < 0.1:
                continue  # it is asked for the same text again
            texts[name] += guess.token_ids[: rng.randrange(len(guess.token_ids) + 1)]
            texts[name].append(rng.randrange(5))
        cache.check()
    assert guessed > 60 and not faults
    for name in texts:
        made.ended(requests[name], texts[name])
    assert cache.pages_used == 0
