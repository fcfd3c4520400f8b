"""Towers over tiles: the image rows of transformers' modules, at every level."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.vision.folders import SIDE, picture, processor_settings, smolvlm
from tests.vision.towers import found_encoder, open_encoder, tile_of
from twostroke.backends.cpu import available_levels
from twostroke.images.idefics3 import read
from twostroke.images.processor import Tiling
from twostroke.types.images import Patching
from twostroke.types.spec.fields import Fields


@pytest.fixture(scope="module")
def idefics(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.nn.Module]:
    folder: Path = tmp_path_factory.mktemp("tower")
    return folder, smolvlm(folder)


@pytest.mark.parametrize("level", available_levels())
def test_rows_of_square_tiles(idefics: tuple[Path, torch.nn.Module], level: str) -> None:
    folder, judge = idefics
    processor = read(Fields(processor_settings(), "settings"), Tiling(Patching(8, 2), SIDE, 4))
    values = np.array(processor.values, np.float32)
    with open_encoder(folder, level, values) as encoder:
        assert len(encoder._pieces) == 5  # three layers, what follows the last attention, the head
        for seed in range(3):
            image = picture(SIDE, SIDE, seed)
            pixels = np.asarray(image)
            rows = encoder.encode(tile_of(found_encoder(folder), image))
            given = np.stack([values[pixels[..., channel], channel] for channel in range(3)])
            with torch.no_grad():
                law = judge.model.get_image_features(torch.tensor(given[None, None]), None).pooler_output[0].numpy()
            assert np.abs(rows - law).max() < 1e-5 * (law.max() - law.min())
