"""Images of extreme shapes in every family: they are refused in one sentence, or become tiles with bounded work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vision.folders import FAMILIES, smolvlm, write_family
from tests.vision.towers import found_encoder
from twostroke.images.decoding.decoder import ImageLimits
from twostroke.images.families.registry import read_processor, read_settings
from twostroke.types.errors import InvalidRequest

MOST = ImageLimits().pixels
SHAPES = (
    *((1, 1), (1, 2), (3, 1), (27, 28), (199, 1), (1, 201), (1, 10_000), (10_000, 1), (1, 65_500)),
    *((4096, 4096), (7000, 7000), (30_000, 1600), (MOST, 1), (1, MOST), (2, MOST // 2)),
)
MOST_ROWS = 4096


@pytest.mark.parametrize("name", ["smolvlm", *FAMILIES])
def test_work_is_bounded_for_images_of_every_shape(name: str, tmp_path: Path) -> None:
    if name == "smolvlm":
        smolvlm(tmp_path)
    else:
        write_family(name, tmp_path)
    sight = found_encoder(tmp_path).sight
    processor = read_processor(sight.family, sight.tiling(MOST_ROWS), read_settings(tmp_path))
    rules = [processor.cut, *([processor.cut_among] if processor.apart else [])]
    refused = 0
    for width, height in SHAPES:
        for rule in rules:
            for low in (False, True):
                try:
                    cut = rule(width, height, low=low)
                except InvalidRequest as error:
                    refused += 1
                    assert f"{width:,} x {height:,}" in error.what or "narrow" in error.what
                    assert max(width, height) > 15 * min(width, height)
                    continue
                made = [step[1] * step[2] for step in cut.steps if step[0] in ("resize", "whole")]
                assert all(0 < pixels <= MOST for pixels in made), (width, height, cut.steps)
                lines = cut.lines(sight.patching)
                assert cut.num_bytes <= 3 * MOST and processor.text(cut, lines)
                assert all(0 < rows * columns <= MOST_ROWS for rows, columns in lines)
    assert refused < len(SHAPES) * len(rules) * 2
