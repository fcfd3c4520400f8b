"""The formats in which encoders compute, and what they cost in accuracy next to float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.vision.folders import write_family
from tests.vision.test_pieces import tiles_of
from tests.vision.towers import FLOATS, found_encoder, open_encoder
from twostroke.assembly.encoder_format import EncoderFormat
from twostroke.backends.cpu import available_levels
from twostroke.ops.operands import F32Array
from twostroke.ops.rows.rotate_heads import RotateHeads
from twostroke.types.spec.formats import KVKind

INT8, WITH_WIDE_KV = EncoderFormat("int8", KVKind.INT8), EncoderFormat("int8", KVKind.BF16)


def test_formats_follow_from_the_language_model() -> None:
    """Files with codes and scales have an encoder of 16 bits next to them, which is rounded as other such files are."""
    assert EncoderFormat.next_to("stored") == EncoderFormat.next_to("int8") == INT8
    assert EncoderFormat.next_to("int4") == EncoderFormat("int4", KVKind.INT8)
    for name, kind in (("f32", KVKind.F32), ("bf16", KVKind.BF16)):
        assert EncoderFormat.next_to(name) == EncoderFormat(name, kind)


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
