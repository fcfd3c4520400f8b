"""The formats in which encoders compute, and what they cost in accuracy next to float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.vision.folders import write_family
from tests.vision.pieces.test_pieces import tiles_of
from tests.vision.towers import FLOATS, found_encoder, open_encoder
from twostroke.assembly.images.encoder_format import EncoderFormat
from twostroke.backends.cpu import available_levels
from twostroke.ops.operands import F32Array
from twostroke.ops.products.linear_add import LinearAdd
from twostroke.ops.quant.formats import INT8 as INT8_WEIGHTS
from twostroke.ops.rows.rotate_heads import RotateHeads
from twostroke.types.spec.formats import KVKind
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.packing.rounded_packing import lost_rows

TWO_CODES = EncoderFormat("int8", KVKind.INT8, two_codes=True)
INT8, WITH_WIDE_KV = EncoderFormat("int8", KVKind.INT8), EncoderFormat("int8", KVKind.BF16)


def test_formats_follow_from_the_language_model() -> None:
    """Files with codes and scales have an encoder of 16 bits next to them, which is rounded as other such files are."""
    assert EncoderFormat.next_to("stored") == EncoderFormat.next_to("int8") == INT8
    assert EncoderFormat.next_to("int4") == EncoderFormat("int4", KVKind.INT8)
    for name, kind in (("f32", KVKind.F32), ("bf16", KVKind.BF16)):
        assert EncoderFormat.next_to(name) == EncoderFormat(name, kind)


def test_a_format_that_is_asked_for_does_not_follow_the_language_model() -> None:
    for weights in ("stored", "bf16", "int4"):
        assert EncoderFormat.next_to(weights, "int16") == TWO_CODES
        assert EncoderFormat.next_to(weights, "int8") == INT8
        assert EncoderFormat.next_to(weights, "f32") == FLOATS
    assert EncoderFormat.next_to("bf16", "usual") == EncoderFormat.next_to("bf16")


def test_whole_numbers_are_rotated_and_rows_are_still_cut(tmp_path: Path) -> None:
    write_family("gemma3", tmp_path)
    model = found_encoder(tmp_path).model
    made = INT8.model(model)
    turned = [sum(isinstance(call, RotateHeads) for call in each.program.calls) for each in (model, made)]
    assert turned == [0, 4 * model.num_layers]
    assert len(made.program.cuts) == len(model.program.cuts)
    assert FLOATS.model(model) is model


@pytest.mark.parametrize("name", ["gemma3", "qwen2.5-vl", "qwen3-vl"])
def test_k_and_v_in_bytes_add_little_to_the_error_of_int8(name: str, tmp_path: Path) -> None:
    """Errors are roots of mean squares as a share of the rows' own."""
    write_family(name, tmp_path)
    values, tiles = tiles_of(tmp_path)

    def rows(form: EncoderFormat) -> F32Array:
        with open_encoder(tmp_path, available_levels()[-1], values, form=form) as encoder:
            return np.concatenate([encoder.encode(tile) for tile in tiles])

    law = rows(FLOATS)
    errors = [float(np.std(rows(form) - law) / np.std(law)) for form in (WITH_WIDE_KV, INT8)]
    assert 0 < errors[0] < 0.05 and errors[1] < 1.3 * errors[0], errors


@pytest.mark.parametrize("name", ["gemma3", "qwen2.5-vl", "qwen3-vl", "internvl", "pixtral"])
def test_a_second_code_leaves_only_the_rounding_of_activations(name: str, tmp_path: Path) -> None:
    """Plain and gated blocks, windows, rows that are kept from the middle of a tower. The first and the last product
    have no second code, and neither has the product after attention, which stays in float32."""
    write_family(name, tmp_path)
    values, tiles = tiles_of(tmp_path)
    model = found_encoder(tmp_path).model
    added = [call for call in TWO_CODES.model(model).program.calls if isinstance(call, LinearAdd)]
    lost = [call.weight for call in added if call.weight.lost_by is not None]
    assert len(lost) == len({each.key for each in lost}) == 3 * model.num_layers
    assert not {each.role for each in lost} & {"pixels", "connector", "o"}

    def rows(form: EncoderFormat) -> F32Array:
        with open_encoder(tmp_path, available_levels()[-1], values, form=form) as encoder:
            whole = [encoder.encode(tile) for tile in tiles]
            assert all(np.array_equal(encoder.encode(tile, 5), own) for tile, own in zip(tiles, whole, strict=True))
            return np.concatenate(whole)

    law = rows(FLOATS)
    errors = [float(np.std(rows(form) - law) / np.std(law)) for form in (INT8, TWO_CODES)]
    assert 0 < errors[1] < 0.9 * errors[0], errors


def test_both_codes_together_have_fifteen_bits() -> None:
    packer, dice = NumpyPacker(), np.random.default_rng(70)
    rows = dice.standard_normal((65, 300)).astype(np.float32)
    lost = lost_rows(rows, INT8_WEIGHTS, packer)
    still = lost_rows(lost, INT8_WEIGHTS, packer)
    assert 2e-3 < np.abs(lost).max() < 0.05
    assert np.abs(still).max() < 2.0**-13
    assert np.array_equal(lost_rows(rows[40:41], INT8_WEIGHTS, packer), lost[40:41])
