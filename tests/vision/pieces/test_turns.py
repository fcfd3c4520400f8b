"""Encodes next to streams: they run in pieces, each image once, and nobody waits for ever. A fault ends one request
alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.vision.folders import picture, smolvlm, user
from tests.vision.test_exactness import opened
from twostroke import LLM
from twostroke.engine.scheduler.limits import image_turns
from twostroke.runner.images.image_encoder import ImageEncoder
from twostroke.runner.runner import ModelRunner
from twostroke.types.images import ImageTile
from twostroke.types.output import GenerationOutput, Prompt
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason
from twostroke.types.result import StepResult
from twostroke.types.sampling.sampling_params import SamplingParams


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("turns")
    smolvlm(made)
    return made


def prompt_of(llm: LLM, *parts: Any, tokens: int) -> Prompt:
    rendered = llm._rendered([user(*parts)], False)
    ids = tuple(llm.tokenizer.encode_rendered(rendered.text, quoted=rendered.quoted))
    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True, logprobs=0)
    return Prompt(ids, params, images=() if rendered.pictures is None else rendered.pictures.spans(ids))


def one_piece_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps next to streams leave no time for encodes, so they get the smallest piece."""
    monkeypatch.setattr(image_turns, "time_left_s", lambda step, limiters: 0.0)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Plan, StepResult]]:
    """Every step from here on."""
    steps: list[tuple[Plan, StepResult]] = []
    execute = ModelRunner.execute

    def noted(runner: ModelRunner, plan: Plan) -> StepResult:
        steps.append((plan, execute(runner, plan)))
        return steps[-1][1]

    monkeypatch.setattr(ModelRunner, "execute", noted)
    return steps


def test_beside_a_stream_a_tile_is_encoded_piece_by_piece(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_piece_a_step(monkeypatch)
    with opened(folder) as llm:
        alone = llm.engine.generate([prompt_of(llm, picture(64, 64), "x", tokens=5)])[0]
    steps = watched(monkeypatch)
    with opened(folder) as llm:
        prompts = [prompt_of(llm, "words", tokens=200), prompt_of(llm, "See ", picture(64, 64), "x", tokens=5)]
        prompts.append(prompt_of(llm, picture(64, 64), "x", tokens=5))
        outputs = llm.engine.generate(prompts)
    assert outputs[2].completions[0].logprobs == alone.completions[0].logprobs
    pieces = [plan for plan, _ in steps if plan.encode is not None]
    tiles = {plan.encode.key for plan in pieces if plan.encode is not None}
    assert len(tiles) >= 9 and len(pieces) > 3 * len(tiles)  # each tile took several steps
    for plan, result in steps:
        if plan.encode is not None:  # the stream had a token in each of them
            assert result.encodes.pieces <= 1
            assert any(each.samples and each.request.group_id == "req-1" for each in plan.sequences)
            assert len(result.encodes.keys) <= 1
    assert sum(len(result.encodes.keys) for _, result in steps) >= len(tiles)


def test_an_image_that_is_known_is_not_encoded_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[ImageTile] = []
    begin = ImageEncoder.begin
    monkeypatch.setattr(ImageEncoder, "begin", lambda own, tile: (counted.append(tile), begin(own, tile))[1])
    with opened(folder) as llm:
        for words in ("one", "two", "three"):
            llm.engine.generate([prompt_of(llm, words, picture(64, 64), tokens=1)])
        opens = llm._built.eyes.num_opened
    assert len(counted) == len({tile.key for tile in counted}) == 10 and opens == 1


def test_a_fault_of_an_encode_ends_its_request_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = 0

    def failing(own: ImageEncoder, tile: ImageTile) -> None:
        nonlocal broken
        broken += 1
        raise ValueError("no such tile")

    with opened(folder) as llm:
        words = prompt_of(llm, "words", tokens=40)
        alone = llm.engine.generate([words])[0]
        seeing = prompt_of(llm, "See ", picture(64, 64), "x", tokens=5)
        monkeypatch.setattr(ImageEncoder, "begin", failing)
        outputs: list[GenerationOutput] = list(llm.engine.generate([words, seeing]))
        monkeypatch.undo()
        again = llm.engine.generate([words, seeing])
    assert broken and outputs[1].completions[0].finish_reason is FinishReason.ERROR
    assert outputs[0].completions[0].logprobs == alone.completions[0].logprobs
    assert [each.completions[0].finish_reason for each in again] == [FinishReason.LENGTH] * 2
