"""A large image is opened and encoded while a stream goes on. A second question about it costs what its text costs.

No clock decides here: the test waits for events, and counts tokens, steps and pieces.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.serve.harness import serving
from tests.vision.folders import picture, png, smolvlm
from tests.vision.pieces.test_turns import one_piece_a_step, prompt_of, watched
from tests.vision.served.test_input import OPTIONS, chat, part, text, url_of
from tests.vision.test_exactness import opened
from twostroke.images.eyes import Eyes, SeenImage
from twostroke.images.parts import AskedImage
from twostroke.runner.images.image_encoder import ImageEncoder
from twostroke.runner.runner import ModelRunner
from twostroke.server.build import build_server
from twostroke.types.images import ImageTile
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

WAIT_S = 300.0
SIDE = 4096


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("waits")
    smolvlm(made)
    return made


class Watch:
    """Holds the engine until an image is being opened, and holds the image until the stream has had its tokens
    meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opening, self.enough, self.is_open = threading.Event(), threading.Event(), threading.Event()
        self.tokens = self.tokens_before = self.tokens_beside = 0
        self.plans: list[Plan] = []
        execute, see = ModelRunner.execute, Eyes._opened

        def stepped(runner: ModelRunner, plan: Plan) -> StepResult:
            if self.tokens == 5:
                assert self.opening.wait(WAIT_S)
                self.tokens_before = self.tokens
            result = execute(runner, plan)
            self.plans.append(plan)
            self.tokens += sum(map(len, result.sampled.values()))
            if self.opening.is_set() and self.tokens >= 15:
                self.enough.set()
                assert self.is_open.wait(WAIT_S)  # so that the stream is still there when the image is encoded
                time.sleep(0 if any(each.encode for each in self.plans) else 0.001)
            return result

        def seen(eyes: Eyes, asked: AskedImage) -> SeenImage:
            self.opening.set()
            assert self.enough.wait(WAIT_S)
            self.tokens_beside = self.tokens - self.tokens_before
            try:
                return see(eyes, asked)
            finally:
                self.is_open.set()

        monkeypatch.setattr(ModelRunner, "execute", stepped)
        monkeypatch.setattr(Eyes, "_opened", seen)
        one_piece_a_step(monkeypatch)


def test_a_stream_has_tokens_while_a_large_image_is_opened_and_encoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = png(Image.radial_gradient("L").resize((SIDE, SIDE)))
    with build_server(str(folder), OPTIONS) as built, serving(built.parts) as live:
        watch, answers = Watch(monkeypatch), list[Any]()
        stream = threading.Thread(target=lambda: answers.append(chat(live, "words", max_tokens=900, ignore_eos=True)))
        stream.start()
        answers.insert(0, chat(live, [part(url_of(large)), text("x")]))
        stream.join()
    assert [each.status for each in answers] == [200, 200]
    assert watch.tokens_beside >= 10  # these came while the file was open
    pieces = [plan for plan in watch.plans if plan.encode is not None]
    tiles = {plan.encode.key for plan in pieces if plan.encode is not None}
    assert len(tiles) >= 2 and len(pieces) > 2 * len(tiles)
    assert all(any(each.samples for each in plan.sequences) for plan in pieces)  # the stream had a token in each


def test_a_second_question_computes_what_follows_the_image_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes as many positions as the same prompt of text, asked again: nothing is opened, and no piece runs."""
    begun: list[ImageTile] = []
    begin = ImageEncoder.begin
    monkeypatch.setattr(ImageEncoder, "begin", lambda own, tile: (begun.append(tile), begin(own, tile))[1])
    steps = watched(monkeypatch)
    with opened(folder) as llm:
        first = prompt_of(llm, picture(64, 64), "What is this?", tokens=1)
        llm.engine.generate([first])
        count = len(begun)
        assert count == len({tile.key for tile in begun}) > 0
        steps.clear()
        again = prompt_of(llm, picture(64, 64), "What is that?", tokens=1)
        found = llm.engine.generate([again])[0]
        seen = sum(each.num_tokens for plan, _ in steps for each in plan.sequences)
        texts = [tuple(7 for _ in first.token_ids[:-20]) + tail for tail in ((3,) * 20, (4,) * 20)]
        steps.clear()
        llm.generate([texts[0]], again.params)
        steps.clear()
        read = llm.generate([texts[1]], again.params)[0]
        told = sum(each.num_tokens for plan, _ in steps for each in plan.sequences)
        assert llm._built.eyes.num_opened == 1
    assert len(begun) == count and not any(result.encode_s for _, result in steps)
    assert found.num_cached_tokens >= first.images[-1].end // 16 * 16
    assert seen == len(again.token_ids) - found.num_cached_tokens
    assert abs(seen - told) <= 32 and read.num_cached_tokens > 0
