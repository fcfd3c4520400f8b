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
from tests.vision.pieces.test_turns import prompt_of
from tests.vision.test_exactness import bits, opened
from twostroke import LLM
from twostroke.cost import span_pieces
from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.ops.passes.span_parts import kept_bytes, span_parts
from twostroke.runner.images.span_runner import SpanRunner
from twostroke.types.encode import PieceKind
from twostroke.types.output import Prompt
from twostroke.types.plan import Plan, Role, SpanWork
from twostroke.types.request import FinishReason
from twostroke.types.result import StepResult

FAMILIES = ("gemma3", "gemma4", "gemma4-unified")
Steps = list[tuple[Plan, StepResult]]


class LittleTime:
    """Satisfies `limits.TimeLimiter`. Next to streams a prompt gets a few tokens of a step, and a span gets its
    smallest piece."""

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
@pytest.mark.parametrize("options", [{}, {"threads": 2, "max_step_tokens": 24}, {"max_step_tokens": 8}], ids=str)
def test_the_same_bits_in_pieces(
    folder: Path, alone: list[Any], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], least: int
) -> None:
    """Each part of the model is a step, or several where a piece has few rows. The stream has a token in each. An image
    may have more rows than a step."""
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
    """The last pieces are computed together then. Their time is that of the prompt's own positions."""
    with hurried(folder, max_step_tokens=24) as (llm, steps):
        words, seeing, _ = asked(llm)
        stepper, token_ids = llm._built.stepper, list[int]()
        names = [stepper.submit(each) for each in (words, seeing)]
        while len(works(steps)) < 3:
            stepper.step()
        stepper.abort(names[0])
        while stepper.has_work:
            token_ids += [token for delta in stepper.step() or () for token in delta.token_ids]
        (account,) = (each for each in llm._built.session.ledger.accounts.since(0, 9) if each.group_id == names[1])
    assert tuple(token_ids) == alone[1][0]
    (rest,) = (plan.span for plan, _ in steps if plan.span is not None and not plan.sequences)
    assert rest is not None and rest.ends and len(rest.pieces) > 1
    spent_s = sum(result.span_s for _, result in steps)
    assert 0 < spent_s <= account.parts.own_prefill_s
    counts, done = account.encodes, works(steps)
    assert (counts.span_steps, counts.span_pieces) == (len(done), sum(len(work.pieces) for work in done))


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


def test_a_prefix_that_ends_inside_of_a_span(folder: Path) -> None:
    """The cached pages hold some rows of the image. The others are computed together, in pieces."""
    with opened(folder) as llm:
        words, usual, _ = asked(llm)
        before = "." * ((8 - usual.images[0].first) % 16)  # so the image begins in the middle of a page
        seeing, other = (prompt_of(llm, before + "See ", picture(40, 40), tail, tokens=8) for tail in ("this", "that"))
        alone = bits(llm.engine.generate([seeing])[0])
    with hurried(folder, max_step_tokens=24) as (llm, steps):
        llm.engine.generate([other])
        steps.clear()
        outputs = llm.engine.generate([words, seeing])
    assert bits(outputs[1]) == alone
    span, cached = seeing.images[0], outputs[1].num_cached_tokens
    assert span.first < cached < span.end and {work.planned.start for work in works(steps)} == {cached}


def test_the_same_bits_after_preemption(folder: Path, alone: list[Any]) -> None:
    """A sequence that loses its pages between two pieces begins the span again."""
    with hurried(folder, max_step_tokens=24) as (llm, steps):
        scheduler, taken = llm._built.scheduler, list[str]()
        schedule = scheduler.schedule

        def disturbed(now: float) -> Plan | None:
            """Preempts the first sequence with an open span when three of its parts are done."""
            found = scheduler.spans._open
            if found is not None and len(works(steps)) == 3 and not taken:
                taken.append(found.sequence.request.request_id)
                scheduler._give_up(found.sequence, "another")
            return schedule(now)

        scheduler.schedule = disturbed
        outputs = llm.engine.generate(asked(llm))
        assert [bits(each) for each in outputs] == alone
        assert taken and sum(each.completions[0].num_preemptions for each in outputs) == 1
    begun = [work for work in works(steps) if (work.pieces[0].part, work.pieces[0].first) == (0, 0)]
    assert len(begun) == 4 and sum(work.ends for work in works(steps)) == 3


def test_an_abort_between_two_pieces(folder: Path, alone: list[Any]) -> None:
    with hurried(folder, max_step_tokens=24) as (llm, steps):
        words, seeing, other = asked(llm)
        stepper = llm._built.stepper
        names = [stepper.submit(each) for each in (words, seeing)]
        while len(works(steps)) < 3:
            stepper.step()
        stepper.abort(names[1])
        assert llm._built.scheduler.spans._open is None
        stepper.abort(names[0])
        assert [bits(each) for each in llm.engine.generate([words, other, seeing])] == [alone[0], alone[2], alone[1]]
        llm._built.cache.check()


def test_a_fault_of_a_piece_ends_its_request_alone(
    folder: Path, alone: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, calls = SpanRunner._make, 0

    def failing(own: SpanRunner, *given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise ValueError("no such part")
        make(own, *given)

    monkeypatch.setattr(SpanRunner, "_make", failing)
    with hurried(folder, max_step_tokens=24) as (llm, _):
        outputs = llm.engine.generate(asked(llm))
        llm._built.cache.check()
    ended = [each.completions[0].finish_reason for each in outputs]
    assert ended == [FinishReason.LENGTH, FinishReason.ERROR, FinishReason.LENGTH]
    assert [bits(outputs[0]), bits(outputs[2])] == [alone[0], alone[2]]


def test_what_is_kept_between_two_pieces(folder: Path) -> None:
    """It is counted by the plan of memory: a few values of each row, and not what a step needs."""
    with hurried(folder, max_step_tokens=24) as (llm, _):
        sizes = list[int]()
        program = llm._built.spec.program
        most = kept_bytes(program, 16)
        own = SpanRunner._compute

        def noted(self: SpanRunner, *given: Any) -> None:
            own(self, *given)
            sizes.append(sum(each.nbytes for each in self._kept._arrays.values()))

        SpanRunner._compute = noted  # type: ignore[method-assign]
        try:
            llm.engine.generate(asked(llm))
        finally:
            SpanRunner._compute = own  # type: ignore[method-assign]
    assert 0 < max(sizes) <= most
