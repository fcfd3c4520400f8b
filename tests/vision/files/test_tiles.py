"""Grids of tiles, places on smaller grids, and refused settings and configs, for the later families."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import kept
from tests.vision.folders import write_family
from tests.vision.towers import found_encoder
from twostroke.images.families.registry import read_processor
from twostroke.images.processor import Tiling
from twostroke.images.tiles import nearest_grid
from twostroke.models.common.sight import Between
from twostroke.runner.images.patch_layout import taps
from twostroke.types.errors import InvalidRequest, ModelError
from twostroke.types.images import Patching


@pytest.mark.parametrize("bounds", [(1, 12), (2, 10), (4, 6), (1, 1)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_the_grid_is_the_judges(bounds: tuple[int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [(int(w), int(h)) for w, h in rng.integers(1, 3000, (200, 2))]
    sizes += [(448, 448), (896, 896), (500, 500), (1000, 500), (500, 1000), (1344, 448)]

    def ask() -> np.ndarray:
        from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

        return np.array([get_optimal_tiled_canvas((height, width), (448, 448), *bounds) for width, height in sizes])

    laws = kept.answer(("get_optimal_tiled_canvas", bounds, sizes), ask).tolist()
    for (width, height), law in zip(sizes, laws, strict=True):
        assert list(nearest_grid(width, height, 448, *bounds)) == law


@pytest.mark.parametrize("side", [1, 5, 16])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 16, 17, 40])
def test_places_on_smaller_grids_are_means(side: int, count: int) -> None:
    table = np.random.default_rng(side).standard_normal((side, 3)).astype(np.float32)

    def ask() -> np.ndarray:
        import torch

        asked = torch.from_numpy(table.T[None, :, :, None].repeat(2, 3))
        how = {"mode": "bilinear", "align_corners": False, "antialias": True}
        return torch.nn.functional.interpolate(asked, size=(count, 2), **how)[0, :, :, 0].numpy()

    law = kept.answer(("bilinear, antialias", count, table.tobytes()), ask)
    places, shares = taps(count, side, Between.SMOOTH)
    made = sum(table[place] * share[:, None] for place, share in zip(places, shares, strict=True))
    assert np.abs(made - law.T).max() < 1e-5
    assert np.abs(sum(shares) - 1).max() < 1e-6


@cache
def settings_of(name: str) -> dict[str, Any]:
    """The processor's file of a family."""
    with tempfile.TemporaryDirectory() as folder:
        write_family(name, Path(folder))
        found: dict[str, Any] = json.loads((Path(folder) / "preprocessor_config.json").read_text())
    return found


def processor_of(name: str, **settings: Any) -> Any:
    tiling = Tiling(Patching(4, 3), 0, 64) if name == "gemma4" else Tiling(Patching(8, 2), 0, 64)
    tiling = tiling if name in ("gemma4", "lfm2-vl") else Tiling(Patching(8, 1), 32, 16)
    family = {"llava-clip": "llava", "lfm2-vl": "lfm2_vl"}.get(name, name)
    return read_processor(family, tiling, {**settings_of(name), **settings})


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gemma4", {"patch_size": 8}),
        ("gemma4", {"pooling_kernel_size": 2}),
        ("gemma4", {"do_resize": False}),
        ("internvl", {"size": {"height": 64, "width": 32}}),
        ("internvl", {"min_patches": 9}),
        ("internvl", {"do_center_crop": True}),
        ("lfm2-vl", {"encoder_patch_size": 16}),
        ("lfm2-vl", {"min_tiles": 5}),
        ("lfm2-vl", {"tile_size": 40}),
        ("llava-clip", {"size": {"shortest_edge": 64}}),
        ("llava-clip", {"crop_size": {"height": 16, "width": 32}}),
        ("llava-clip", {"do_center_crop": False}),
        ("llava-clip", {"do_pad": True}),
    ],
    ids=str,
)
def test_settings_that_cannot_be_kept_are_refused(name: str, settings: dict[str, Any]) -> None:
    words = "size|tiles|patches" if "patches" in str(settings) or "crop_size" in settings else "|".join(settings)
    with pytest.raises(ModelError, match=words):
        processor_of(name, **settings)


def test_little_is_made_of_an_image_where_little_is_asked() -> None:
    for name in ("internvl", "lfm2-vl"):
        processor = processor_of(name)
        assert len(processor.cut(200, 90).sizes) > 1 and len(processor.cut(200, 90, low=True).sizes) == 1
    assert processor_of("lfm2-vl", do_image_splitting=False).cut(200, 90).rows == 0


def test_images_that_are_too_narrow_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="narrow"):
        processor_of("lfm2-vl").cut(1, 100_000)
    assert processor_of("gemma4").cut(1, 100_000).sizes == ((12, 20 * 12),)


def test_no_tile_has_more_rows_than_memory_is_planned_for() -> None:
    for name in ("gemma4", "lfm2-vl"):
        processor, unit = processor_of(name), 12 if name == "gemma4" else 16
        for width in range(1, 400, 7):
            for height in (1, 20, 333):
                try:
                    sizes = processor.cut(width, height).sizes
                except InvalidRequest:
                    continue
                assert max(wide * high for wide, high in sizes) <= processor.most_rows * unit**2


@pytest.mark.parametrize(
    ("name", "outer", "tower"),
    [
        ("gemma4", {}, {"head_dim": 22}),
        ("internvl", {"downsample_ratio": 0.3}, {}),
        ("internvl", {"vision_feature_layer": -2}, {}),
        ("internvl", {"vision_feature_select_strategy": "full"}, {}),
        ("internvl", {}, {"image_size": [32, 64]}),
        ("internvl", {}, {"norm_type": "none"}),
        ("internvl", {}, {"use_mean_pooling": False}),
        ("lfm2-vl", {}, {"num_patches": 24}),
        ("llava-clip", {"vision_feature_layer": [-2, -1]}, {}),
        ("llava-clip", {"vision_feature_layer": -9}, {}),
        ("llava-clip", {"vision_feature_select_strategy": "full"}, {}),
    ],
    ids=str,
)
def test_configs_that_cannot_be_kept_are_refused(
    tmp_path: Path, name: str, outer: dict[str, Any], tower: dict[str, Any]
) -> None:
    write_family(name, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert found_encoder(tmp_path)
    config |= outer
    config["vision_config"] |= tower
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=next(iter({**outer, **tower}))):
        found_encoder(tmp_path)


def test_the_judge_of_lfm2_sorts_grids_alike() -> None:
    """Its list comes from a set, and ours is sorted."""
    sizes = np.random.default_rng(5).integers(1, 4000, (200, 2)).tolist()

    def ask() -> np.ndarray:
        from tests.vision.families.lfm2 import judges

        judge = judges.Lfm2VlImageProcessor._get_grid_layout
        own = object.__new__(judges.Lfm2VlImageProcessor)
        return np.array([judge(own, height, width, 2, 10, 512)[:2] for width, height in sizes])

    laws = kept.answer(("Lfm2VlImageProcessor's grids", sizes), ask).tolist()
    for (width, height), law in zip(sizes, laws, strict=True):
        assert list(nearest_grid(width, height, 512, 2, 10)) == law
