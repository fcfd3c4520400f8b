"""Towers over tiles: the image rows of transformers' modules, at every level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from tests.vision.families.family import Family
from tests.vision.folders import FAMILIES, SIDE, picture, png, processor_settings
from tests.vision.towers import found_encoder, open_encoder, tile_of
from twostroke.backends.cpu import available_levels
from twostroke.images.decoding.decoder import ImageDecoder, ImageLimits
from twostroke.images.eyes import Eyes
from twostroke.images.families.idefics3 import read
from twostroke.images.families.registry import read_processor, read_settings
from twostroke.images.parts import AskedImage
from twostroke.images.processor import Processor, Tiling
from twostroke.runner.images.patch_layout import PatchLayout
from twostroke.types.errors import InvalidRequest
from twostroke.types.images import ImageTile, Patching
from twostroke.types.spec.fields import Fields


@pytest.fixture(scope="module")
def idefics(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    from tests.vision.smolvlm import make_smolvlm

    folder: Path = tmp_path_factory.mktemp("tower")
    return folder, make_smolvlm(folder)


@pytest.mark.parametrize("level", available_levels())
def test_rows_of_square_tiles(idefics: tuple[Path, Any], level: str) -> None:
    import torch

    folder, judge = idefics
    processor = read(Fields(processor_settings(), "settings"), Tiling(Patching(8, 2), SIDE, 4))
    values = np.array(processor.values, np.float32)
    with open_encoder(folder, level, values) as encoder:
        assert len(encoder._parts) == 8  # three attentions, the parts around each of them, the head
        for seed in range(3):
            image = picture(SIDE, SIDE, seed)
            pixels = np.asarray(image)
            rows = encoder.encode(tile_of(found_encoder(folder), image))
            given = np.stack([values[pixels[..., channel], channel] for channel in range(3)])
            with torch.no_grad():
                law = judge.model.get_image_features(torch.tensor(given[None, None]), None).pooler_output[0].numpy()
            assert np.abs(rows - law).max() < 1e-5 * (law.max() - law.min())


SIZES = [(1, 1), (1, 150), (27, 28), (32, 32), (33, 32), (97, 96), (400, 300), (5, 900), (1000, 13)]
ROWS = 64
"""The most image rows, which is more than any of the families' settings allows."""


class Opened:
    """A family's folder, judge, encoder and processor."""

    def __init__(self, family: Family, folder: Path) -> None:
        self.family, self.folder = family, folder
        self.judge = family.write(folder)
        self.encoder = found_encoder(folder)
        sight = self.encoder.sight
        tiling = sight.tiling(ROWS)
        self.processor: Processor = read_processor(sight.family, tiling, read_settings(folder))
        self.eyes = Eyes(self.processor, ImageDecoder(ImageLimits()), sight.patching, sight.placeholder)
        self.values = np.array(self.processor.values, np.float32)

    def tiles(self, size: tuple[int, int], seed: int = 0) -> tuple[ImageTile, ...]:
        """A picture as the family's tiles, read from a file."""
        return self.eyes.open(AskedImage(png(picture(*size, seed)), False)).tiles


FLAT = 50
"""The longer side over the shorter side from which on no line of a grid may show an image."""


@pytest.fixture(scope="module", params=FAMILIES)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    from tests.vision.families import registry as families

    made = Opened(families.FAMILIES[request.param], tmp_path_factory.mktemp(request.param))
    yield made
    made.eyes.close()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_pixels_of_every_size(opened: Opened, size: tuple[int, int]) -> None:
    """The bytes are equal, and so are their numbers."""
    try:
        laws = opened.family.pixels(opened.family.processed([picture(*size)]))
    except ValueError:  # the judge computes a side of 0 for this image
        with pytest.raises(InvalidRequest, match="narrow"):
            opened.tiles(size)
        return
    tiles = opened.tiles(size)
    if len(tiles) == 1 and max(size) > FLAT * min(size):
        laws = laws[:1]  # the judge makes a grid too, of which no line shows the image, and drops all of its rows
    for tile, law in zip(tiles, laws, strict=True):
        compare_pixels(opened, tile, law.numpy())


def compare_pixels(opened: Opened, tile: ImageTile, law: np.ndarray) -> None:
    pixels = np.frombuffer(tile.pixels, np.uint8).reshape(tile.height, tile.width, 3)
    layout = PatchLayout(structs.replace(opened.encoder.sight, windows=None), opened.values)
    if tile.sheet is None and len(law) == len(layout.patches(tile)) > 1:  # patches
        rows, order = layout.patches(tile), layout.order(tile.lines, tile.columns)
        if law.ndim == 4:  # in reading order, with each patch separate
            law = law[order.lines * layout.grid(tile)[1] + order.columns].reshape(len(law), -1)
        assert rows.shape == law.shape and np.abs(rows - law).max() < 1e-5
    made = np.stack([opened.values[pixels[..., channel], channel] for channel in range(3)])
    if law.ndim == 4:
        assert made.shape == law[0].shape and np.abs(made - law[0]).max() < 1e-5
    if opened.family.rounded:
        return
    mean, std = (np.array(opened.family.settings[name]) for name in ("image_mean", "image_std"))
    plain = (made + 1) / 2 if opened.family.doubled else made
    bytes_of = np.rint((plain.transpose(1, 2, 0) * std + mean) * 255)
    assert np.array_equal(bytes_of, pixels)


@pytest.mark.parametrize("level", available_levels())
def test_rows_of_every_family(opened: Opened, level: str) -> None:
    import torch

    with open_encoder(opened.folder, level, opened.values, ROWS) as encoder:
        for size in ((32, 32), (90, 31), (20, 60)):
            given = opened.family.inputs([picture(*size)])
            with torch.no_grad():
                found = opened.family.features(opened.judge, given)
            pooled = found.pooler_output if found.pooler_output is not None else found.last_hidden_state
            law = [torch.cat([each.reshape(-1, each.shape[-1]) for each in pooled])]
            law += [each[0] for each in getattr(found, "deepstack_features", None) or ()]
            expected = np.concatenate([each.numpy().reshape(-1, each.shape[-1]) for each in law], axis=1)
            rows = np.concatenate([encoder.encode(tile) for tile in opened.tiles(size)])
            assert rows.shape == expected.shape
            assert np.abs(rows - expected).max() < 1e-4 * (expected.max() - expected.min())
