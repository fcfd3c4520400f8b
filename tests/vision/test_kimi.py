"""Kimi K2.5 and Kimi-VL: sizes of the judge's processor, the names of published files, limits, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import kept
from tests.vision.folders import picture, write_family
from tests.vision.towers import found_encoder, open_encoder, tile_of
from twostroke.backends.cpu import available_levels
from twostroke.images.families.kimi import KimiProcessor
from twostroke.images.families.registry import read_processor, read_settings
from twostroke.images.processor import Tiling
from twostroke.types.errors import ModelError
from twostroke.types.images import Patching

MANY = 1 << 20


def processor_of(most_rows: int = MANY, **settings: Any) -> KimiProcessor:
    made = read_processor("kimi", Tiling(Patching(14, 2), 0, most_rows), settings)
    assert isinstance(made, KimiProcessor)
    return made


@pytest.mark.parametrize("seed", range(3))
def test_sizes_are_the_judges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [(int(w), int(h)) for w, h in rng.integers(1, 9000, (200, 2))]
    sizes += [(int(w), int(h)) for w, h in rng.integers(1, 60, (50, 2))]
    sizes += [(1, 1), (28, 28), (29, 28), (7168, 28), (7169, 5), (1, 20_000), (1792, 1792), (1793, 1805), (50_000, 900)]

    def ask() -> np.ndarray:
        from tests.vision.families.kimi import judges

        found = [judges.navit_resize(height, width, 14, 2, 16_384, 512) for width, height in sizes]
        return np.array(found).reshape(-1, 4)

    laws = kept.answer(("navit_resize", sizes), ask).tolist()
    processor = processor_of()
    for (width, height), (high, wide, high_padded, wide_padded) in zip(sizes, laws, strict=True):
        cut = processor.cut(width, height)
        assert cut.steps == (("resize", wide, high, 3), ("tile", 0, 0, wide_padded, high_padded))
        assert cut.sizes == ((wide_padded, high_padded),)


@pytest.mark.parametrize("most", [1, 64, 1024, 4096])
def test_no_tile_has_more_rows_than_memory_is_planned_for(most: int) -> None:
    """The judge counts patches before black is added, so its largest images have more rows than a quarter of them."""
    processor, rng = processor_of(most), np.random.default_rng(most)
    for width, height in [*rng.integers(1, 9000, (200, 2)).tolist(), (1805, 1805), (1, 50_000), (2000, 2000)]:
        cut = processor.cut(width, height)
        ((wide, high),) = cut.sizes
        assert 0 < wide * high <= most * 28**2 and wide % 28 == high % 28 == 0
        unbound = processor_of().cut(width, height)
        if unbound.sizes[0][0] * unbound.sizes[0][1] <= most * 28**2 and most == 4096:
            assert cut == unbound
    assert processor_of().cut(2000, 2000).sizes == ((1820, 1820),)


def test_low_detail_has_few_rows() -> None:
    ((wide, high),) = processor_of().cut(1500, 1100, low=True).sizes
    assert wide * high <= 256 * 28**2 and 1.2 < wide / high < 1.6
    assert processor_of().cut(300, 200, low=True) == processor_of().cut(300, 200)


def rows_of(folder: Path) -> np.ndarray:
    """The image rows of a picture."""
    values = np.linspace(-1, 1, 256, dtype=np.float32)[:, None].repeat(3, 1)
    with open_encoder(folder, available_levels()[0], values) as encoder:
        return encoder.encode(tile_of(found_encoder(folder), picture(48, 32)))


PUBLISHED = {
    "media_proc_cfg": {
        **{"in_patch_limit": 40, "patch_size": 8, "merge_kernel_size": 2, "patch_limit_on_one_side": 20},
        **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7], "fixed_output_tokens": None},
        **{"in_patch_limit_each_frame": 4096, "sample_fps": 2.0, "timestamp_mode": "hh:mm:ss.fff"},
    },
    **{"auto_map": {}, "image_processor_type": "KimiK25VisionProcessor"},
}


def test_files_of_moonshot_describe_the_same_model(tmp_path: Path) -> None:
    """Their fields have other names than those of transformers."""
    write_family("kimi-k2.5", tmp_path)
    law, settings = found_encoder(tmp_path), read_settings(tmp_path)
    rows = rows_of(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    own = config["vision_config"]
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
    former = {f"vt_{name}": own[name] for name in names}
    former |= {f"init_pos_emb_{name}": own[f"pos_emb_{name}"] for name in ("height", "width", "time")}
    former |= {"merge_kernel_size": [2, 2], "patch_size": 8, "projector_ln_eps": 1e-5, "mm_hidden_size": 48}
    config["vision_config"] = {**former, "projector_hidden_act": "gelu", "pos_emb_type": "divided_fixed"}
    config["media_placeholder_token_id"] = config.pop("image_token_id")
    config["text_config"]["model_type"] = "kimi_k2"
    config["architectures"] = ["KimiK25ForConditionalGeneration"]
    for name in ("projection_hidden_size", "projection_layer_norm_eps"):
        del config[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PUBLISHED))
    assert found_encoder(tmp_path).sight == law.sight
    assert np.array_equal(rows_of(tmp_path), rows)
    tiling = law.sight.tiling(64)
    processors = [read_processor("kimi", tiling, each) for each in (settings, read_settings(tmp_path))]
    assert processors[0] == processors[1]


@pytest.mark.parametrize(
    "settings",
    [
        {"patch_size": 16},
        {"merge_size": 3},
        {"merge_kernel_size": [2, 1]},
        {"pad_input": False},
        {"fixed_output_tokens": 64},
        {"do_resize": False},
        {"size": {"max_height": 5, "max_width": 6}},
        {"media_proc_cfg": {"patch_size": 16}},
    ],
    ids=str,
)
def test_settings_that_cannot_be_kept_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="patch_size" if "media_proc_cfg" in settings else next(iter(settings))):
        processor_of(**settings)


@pytest.mark.parametrize(
    ("outer", "tower"),
    [
        ({}, {"pos_emb_width": 6}),
        ({}, {"merge_kernel_size": [2, 3]}),
        ({}, {"num_attention_heads": 8}),
        ({"projection_hidden_size": 40}, {}),
        ({"image_token_id": 100_000}, {}),
    ],
    ids=str,
)
def test_configs_that_cannot_be_kept_are_refused(tmp_path: Path, outer: dict[str, Any], tower: dict[str, Any]) -> None:
    write_family("kimi-k2.5", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= outer
    config["vision_config"] |= tower
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=next(iter({**outer, **tower}))):
        found_encoder(tmp_path)
