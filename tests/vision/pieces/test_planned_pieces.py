"""While a stream runs, a large image is encoded in pieces that are planned within the time that the gap rule leaves.

A process of its own, with a lower priority, opens and resizes it: tests/vision/pieces/test_pieces.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.vision.folders import picture, write_family
from tests.vision.pieces.test_turns import prompt_of, watched
from tests.vision.test_exactness import opened
from twostroke.cost.encode_pieces import LEAST_ROWS, EncodePiece
from twostroke.engine.scheduler.limits import image_turns
from twostroke.engine.scheduler.limits.gap_limiter import GapLimiter
from twostroke.engine.scheduler.limits.image_turns import ImageTurns
from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.runner.images.image_encoder import ImageEncoder
from twostroke.types.encode import EncodePace
from twostroke.types.plan import EncodeTurn

SIDE, ROWS, SHORT_S = 4096, 512, 0.002


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose images may have as many rows as --image-tokens allows."""
    made: Path = tmp_path_factory.mktemp("large")
    write_family("qwen3-vl", made)
    place = made / "preprocessor_config.json"
    areas = {"shortest_edge": 256, "longest_edge": 1 << 24}
    place.write_text(json.dumps({**json.loads(place.read_text()), "size": areas}))
    return made


def test_every_piece_next_to_a_stream_is_planned_within_the_rule(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[tuple[float, float]] = []
    pieces: list[tuple[float, bool, EncodePiece, EncodePace]] = []
    take, advance, usual_left_s = ImageTurns.take, ImageEncoder.advance, image_turns.time_left_s

    def taken(own: ImageTurns, step: StepLoad, limiters: Any) -> EncodeTurn:
        left = [each.left_s(step) for each in limiters if isinstance(each, GapLimiter)]
        found = take(own, step, limiters)
        if found.tile is not None and step.streams():
            turns.append((min(left), found.seconds))
        return found

    def advanced(own: ImageEncoder, most_s: float, *, least: bool, pace: EncodePace) -> EncodePiece | None:
        found = advance(own, most_s, least=least, pace=pace)
        if found is not None and most_s != float("inf"):
            pieces.append((most_s, least, found, pace))
        return found

    # A quick processor encodes the whole image in what the rule leaves of one step. It gets less here.
    monkeypatch.setattr(image_turns, "time_left_s", lambda step, limiters: min(SHORT_S, usual_left_s(step, limiters)))
    monkeypatch.setattr(ImageTurns, "take", taken)
    monkeypatch.setattr(ImageEncoder, "advance", advanced)
    steps = watched(monkeypatch)
    image = Image.radial_gradient("L").resize((SIDE, SIDE)).convert("RGB")
    with opened(folder, context=2 * ROWS, image_tokens=ROWS, max_step_tokens=None) as llm:
        prompts = [prompt_of(llm, "words", tokens=400), prompt_of(llm, picture(32, 32), image, "x", tokens=2)]
        span = prompts[1].images[-1]
        llm.engine.generate(prompts)
    assert span.tile.rows > 0.8 * ROWS, "as large as it may be"
    assert turns and all(seconds <= max(0.0, left_s) * (1 + 1e-9) for left_s, seconds in turns)
    assert len(pieces) > 5
    for most_s, least, piece, pace in pieces:
        took_s = piece.seconds * pace.of(piece.kind)  # predicted seconds, times how long they take here
        assert took_s <= most_s * (1 + 1e-9) or (least and piece.end - piece.first <= LEAST_ROWS)
    beside = [plan for plan, _ in steps if plan.encode is not None]
    # A quick machine may have time for all pieces in one step.
    assert beside and all(any(each.samples for each in plan.sequences) for plan in beside)
