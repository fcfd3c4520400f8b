"""Llama 4: grids, bytes and colours of the judge's processor, low detail, and configs that cannot be kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import kept
from tests.vision.files.test_tiles import settings_of
from tests.vision.folders import picture, png, write_family
from tests.vision.towers import found_encoder
from twostroke.images.decoding.decoder import ImageDecoder, ImageLimits
from twostroke.images.families.llama4 import Llama4Processor
from twostroke.images.families.registry import read_processor
from twostroke.images.processor import Cut, Tiling
from twostroke.types.errors import ModelError
from twostroke.types.images import Patching

SIZES = [(1, 1), (1, 150), (27, 28), (32, 32), (33, 32), (97, 96), (400, 300), (5, 900), (64, 64), (100, 31)]


def processor_of(side: int, **settings: Any) -> Llama4Processor:
    patching = Patching(14, 2) if side == 336 else Patching(8, 2)
    made = read_processor("llama4", Tiling(patching, side, 144), {"size": {"height": side, "width": side}, **settings})
    assert isinstance(made, Llama4Processor)
    return made


@pytest.mark.parametrize("settings", [{}, {"resize_to_max_canvas": True}, {"max_patches": 5}], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_grids_and_sizes_are_the_judges(seed: int, settings: dict[str, Any]) -> None:
    """The judge computes some quotients in float32, so sizes that are rounded down may differ by a pixel elsewhere."""
    rng = np.random.default_rng(seed)
    sizes = [(int(w), int(h)) for w, h in rng.integers(1, 4000, (150, 2))]
    sizes += [(int(w), int(h)) for w, h in rng.integers(1, 400, (50, 2))]
    sizes += [(336, 336), (672, 336), (337, 336), (1344, 1344), (5376, 336), (336, 5377), (1000, 1), (1, 20_000)]

    def ask() -> np.ndarray:
        from tests.vision.families.llama4 import judged_sizes

        return np.array([judged_sizes(width, height, settings) for width, height in sizes])

    laws = kept.answer(("the sizes of Llama 4", settings, sizes), ask).tolist()
    processor = processor_of(336, **settings)
    for (width, height), law in zip(sizes, laws, strict=True):
        cut = processor.cut(width, height)
        assert cut.steps[0][0] == "resize" and len(cut.sizes) == (cut.rows * cut.columns or 0) + 1
        assert [cut.rows or 1, cut.columns or 1, cut.steps[0][2], cut.steps[0][1]] == law, (width, height)


@pytest.mark.parametrize("settings", [{}, {"resize_to_max_canvas": True}, {"resample": 3}], ids=str)
def test_bytes_are_the_judges(settings: dict[str, Any]) -> None:
    """Before they become numbers, which are rounded so far that bytes do not follow from them."""
    own = {**settings_of("llama4"), **settings}
    processor, decoder = processor_of(32, **own), ImageDecoder(ImageLimits())

    def ask(size: tuple[int, int]) -> np.ndarray:
        from tests.vision.families.llama4 import llama4_tiles

        plain = {**own, "do_rescale": False, "do_normalize": False}
        return llama4_tiles([picture(*size)], plain)["pixel_values"][0].numpy()  # type: ignore[no-any-return]

    for size in SIZES:
        law = kept.answer(("the bytes of Llama 4", own, size), lambda size=size: ask(size))  # type: ignore[misc]
        cuts: list[Cut] = []

        def rule(width: int, height: int, cuts: list[Cut] = cuts) -> tuple[Any, int]:
            cuts.append(processor.cut(width, height))
            return cuts[0].steps, cuts[0].num_bytes

        found = np.frombuffer(decoder.tiles(png(picture(*size)), rule), np.uint8).reshape(-1, 32, 32, 3)
        assert np.array_equal(found.transpose(0, 3, 1, 2), law), size
    decoder.close()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]},
        {"do_normalize": False},
        {"do_rescale": False, "image_mean": [0.5, 0.4, 0.6]},
    ],
    ids=str,
)
def test_values_of_bytes_are_the_judges(settings: dict[str, Any]) -> None:
    def ask() -> np.ndarray:
        from tests.vision.families.llama4 import judged_values

        return judged_values(settings)

    law = kept.answer(("the values of Llama 4", settings), ask)
    found = np.array(processor_of(336, **settings).values, np.float32)
    if processor_of(336, **settings).rounds:
        assert np.array_equal(found, law)
    assert np.abs(found - law).max() < 1e-5 * max(1.0, np.abs(law).max())


def test_low_detail_is_one_tile() -> None:
    processor = processor_of(32, max_patches=4)
    low = processor.cut(200, 90, low=True)
    assert low.sizes == ((32, 32),) and low.steps == (("whole", 32, 32, 2),)
    assert len(processor.cut(200, 90).sizes) == 4
    assert processor.cut(20, 30, low=True) == processor.cut(20, 30)
    text = processor.text(low, [(2, 2)])
    assert text == f"<|image_start|><|image|>{'<|patch|>' * 4}<|image_end|>"


@pytest.mark.parametrize(
    ("outer", "tower"),
    [
        ({}, {"pixel_shuffle_ratio": 0.3}),
        ({}, {"intermediate_size": 80}),
        ({}, {"projector_output_dim": 41}),
        ({}, {"vision_output_dim": 41}),
        ({}, {"num_attention_heads": 8}),
        ({"image_token_index": 100_000}, {}),
    ],
    ids=str,
)
def test_configs_that_cannot_be_kept_are_refused(tmp_path: Path, outer: dict[str, Any], tower: dict[str, Any]) -> None:
    write_family("llama4", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert found_encoder(tmp_path)
    config |= outer
    config["vision_config"] |= tower
    (tmp_path / "config.json").write_text(json.dumps(config))
    word = next(iter({**outer, **tower}))
    with pytest.raises(ModelError, match="image_token" if outer else word):
        found_encoder(tmp_path)


@pytest.mark.parametrize("settings", [{"size": {"height": 64, "width": 32}}, {"do_resize": False}], ids=str)
def test_settings_that_cannot_be_kept_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=next(iter(settings))):
        processor_of(32, **settings)
