"""Rows of an image that see each other go through the language model in pieces next to streams, with the same bits as
in one step. Other sequences compute whole steps between two pieces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.vision.folders import picture, write_family
from tests.vision.test_exactness import bits, opened
from tests.vision.test_turns import prompt_of
from twostroke import LLM
from twostroke.cost import span_pieces
from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.ops.passes.span_parts import kept_bytes, span_parts
from twostroke.runner.span_runner import SpanRunner
from twostroke.types.encode import PieceKind
from twostroke.types.output import Prompt
from twostroke.types.plan import Plan, Role, SpanWork
from twostroke.types.request import FinishReason
from twostroke.types.result import StepResult

FAMILIES = ("gemma3", "gemma4", "gemma4-unified")
Steps = list[tuple[Plan, StepResult]]


class LittleTime:
    """Satisfies `limits.TimeLimiter`. Next to streams a prompt gets a few tokens of a step, and a span gets its smallest
    piece."""

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        return min(wanted_tokens, 5) if sequence.role is Role.PREFILL and step.streams() else wanted_tokens

    def left_s(self, step: StepLoad) -> float:
        return 0.0 if step.streams() else inf


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("spans")
    write_family(request.param, made)
    return made


@contextmanager
def hurried(folder: Path, **options: Any) -> Iterator[tuple[LLM, Steps]]:
    """An engine whose steps have no time to spare next to streams, and its steps."""
    with opened(folder, **options) as llm:
        scheduler, steps = llm._built.scheduler, Steps()
        commit = scheduler.commit
        scheduler.limiters += (LittleTime(),)
        scheduler.commit = lambda plan, result, now: (steps.append((plan, result)), commit(plan, result, now))[1]
        yield llm, steps


def works(steps: Steps) -> list[SpanWork]:
    return [plan.span for plan, _ in steps if plan.span is not None]


def asked(llm: LLM, tokens: int = 8) -> list[Prompt]:
    """A stream of words, and two prompts with images."""
    first = prompt_of(llm, "See ", picture(40, 40), " this.", tokens=tokens)
    second = prompt_of(llm, picture(32, 48, 1), "and", picture(40, 40), tokens=tokens)
    return [prompt_of(llm, "words", tokens=200), first, second]


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[tuple[Any, ...]]:
    found = []
    for place in range(3):
        with opened(folder) as llm:
            found.append(bits(llm.engine.generate([asked(llm)[place]])[0]))
    return found


@pytest.mark.parametrize("least", [32, 3])
@pytest.mark.parametrize("options", [{}, {"threads": 2, "max_step_tokens": 24}], ids=str)
def test_the_same_bits_in_pieces(
    folder: Path, alone: list[Any], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], least: int
) -> None:
    """Each part of the model is a step, or several where a piece has few rows. The stream has a token in each."""
    monkeypatch.setattr(span_pieces, "LEAST_ROWS", least)
    with hurried(folder, **options) as (llm, steps):
        assert [bits(each) for each in llm.engine.generate(asked(llm))] == alone
        parts = len(span_parts(llm._built.spec.program))
    done = works(steps)
    spans = sum(work.ends for work in done)
    assert spans == (3 if options else 1)  # without options the first step holds all but one
    assert all(len(work.pieces) == 1 for work in done) and len(done) >= spans * parts * (1 if least == 32 else 2)
    assert all(plan.sequences for plan, _ in steps if plan.span is not None)
    kinds = [piece.kind for work in done for piece in work.pieces]
    assert set(kinds) == {PieceKind.SPAN_PRODUCTS, PieceKind.SPAN_ATTENTION}


def test_a_span_goes_on_when_its_streams_have_ended(folder: Path, alone: list[Any]) -> None:
    """The last pieces are computed together then. All times belong to a part, and the pieces are the prompt's own."""
    with hurried(folder, max_step_tokens=24) as (llm, steps):
        words, *seeing = asked(llm)
        short = replace(words, params=replace(words.params, max_tokens=4))
        outputs = llm.engine.generate([short, *seeing])
        assert [bits(each) for each in outputs[1:]] == alone[1:]
        accounts = {each.request_id: each for each in llm._built.session.ledger.accounts.latest(10)}
    last = [plan for plan, _ in steps if plan.span is not None and not plan.sequences]
    assert last and any(len(plan.span.pieces) > 1 for plan in last if plan.span is not None)
    spent_s = sum(result.span_s for plan, result in steps if plan.span is not None)
    assert 0 < spent_s <= sum(each.parts.own_prefill_s for each in accounts.values())


def test_the_same_bits_where_the_image_ends_the_prompt(folder: Path) -> None:
    """The last piece then samples, and the log probabilities of the prompt are those of a whole step."""
    found = []
    for engine in (opened(folder), hurried(folder, max_step_tokens=24)):
        with engine as made:
            llm = made if isinstance(made, LLM) else made[0]
            words, seeing = asked(llm)[:2]
            params = replace(seeing.params, prompt_logprobs=1)
            cut = replace(seeing, token_ids=seeing.token_ids[: seeing.images[0].end], params=params)
            outputs = llm.engine.generate([cut] if llm is made else [words, cut])
            found.append((bits(outputs[-1]), outputs[-1].prompt_logprobs))
            ended = [] if llm is made else [plan.span for plan, _ in made[1] if plan.span and plan.span.ends]
    assert found[0] == found[1] and found[0][1]
    assert [work.planned.samples for work in ended if work is not None] == [True]


def test_a_prefix_that_ends_inside_of_a_span(folder: Path, alone: list[Any]) -> None:
    """The cached pages hold some rows of the image. The others are computed together, in pieces."""
    with hurried(folder, max_step_tokens=24) as (llm, steps):
        words, seeing, _ = asked(llm)
        llm.engine.generate([seeing])
        steps.clear()
        outputs = llm.engine.generate([words, seeing])
    assert bits(outputs[1]) == alone[1]
    span, starts = seeing.images[0], {work.planned.start for work in works(steps)}
    assert outputs[1].num_cached_tokens in range(span.first + 1, span.end) and starts == {outputs[1].num_cached_tokens}
