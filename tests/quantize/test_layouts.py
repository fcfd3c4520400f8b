"""Each layout compared with its format's description, code by code, with Python's whole numbers."""

from __future__ import annotations

import numpy as np

from twostroke.quantize.layouts.awq import AwqLayout
from twostroke.quantize.layouts.compressed import PackedLayout, RowsLayout
from twostroke.quantize.layouts.gptq import GptqLayout
from twostroke.quantize.mathematics.gptq import GptqRule, gptq
from twostroke.quantize.mathematics.solved import round_matrix

RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((24, 128)).astype(np.float32)
INPUTS = RNG.standard_normal((500, 128)) * np.exp(RNG.standard_normal(128))
HESSIAN = (INPUTS.T @ INPUTS).astype(np.float32)


def code(words: np.ndarray, place: int, bits: int) -> int:
    """The code at one place in a row of words of 32 bits, lowest bits first."""
    whole = int.from_bytes(words.astype("<i4").tobytes(), "little")
    return whole >> place * bits & (1 << bits) - 1


def test_gptq():
    layout = GptqLayout()
    solved = gptq(MATRIX, HESSIAN, GptqRule(layout.rule, 32, layout.order))
    arrays = layout.arrays(solved)
    assert (
        arrays["qweight"].shape == (16, 24) and arrays["qzeros"].shape == (4, 3) and arrays["scales"].shape == (4, 24)
    )
    assert not solved.in_order
    for row in (0, 5, 23):
        for column in (0, 1, 64, 127):
            group = arrays["g_idx"][column]
            zero = code(arrays["qzeros"][group], row, 4) + 1  # the first format stores one less
            scale = float(arrays["scales"][group, row])
            value = scale * (code(arrays["qweight"][:, row], column, 4) - zero)
            assert value == float(solved.values()[row, column])


def test_awq():
    layout = AwqLayout()
    solved = round_matrix(MATRIX, layout.rule, 64)
    arrays = layout.arrays(solved)
    assert (
        arrays["qweight"].shape == (128, 3) and arrays["qzeros"].shape == (2, 3) and arrays["scales"].shape == (2, 24)
    )
    place = {row: place for place, row in enumerate((0, 2, 4, 6, 1, 3, 5, 7))}
    for row in (0, 1, 6, 13, 23):
        for column in (0, 64, 127):
            word = slice(row // 8, row // 8 + 1)
            zero = code(arrays["qzeros"][column // 64, word], place[row % 8], 4)
            value = float(arrays["scales"][column // 64, row]) * (
                code(arrays["qweight"][column, word], place[row % 8], 4) - zero
            )
            assert value == float(solved.values()[row, column])


def test_pack_quantized():
    layout = PackedLayout()
    solved = gptq(MATRIX, HESSIAN, GptqRule(layout.rule, 64, layout.order))
    arrays = layout.arrays(solved)
    assert arrays["weight_packed"].shape == (24, 16) and list(arrays["weight_shape"]) == [24, 128]
    for row in (0, 7, 23):
        for column in (0, 63, 64, 127):
            value = float(arrays["weight_scale"][row, column // 64]) * (
                code(arrays["weight_packed"][row], column, 4) - 8
            )
            assert value == float(solved.values()[row, column])


def test_int_quantized():
    layout = RowsLayout()
    solved = round_matrix(MATRIX, layout.rule, 128)
    arrays = layout.arrays(solved)
    assert arrays["weight"].dtype == np.int8 and arrays["weight_scale"].shape == (24, 1)
    assert (arrays["weight"].astype(np.float32) * arrays["weight_scale"] == solved.values()).all()
    assert np.abs(solved.values() - MATRIX).max() < 0.02


def test_shapes_that_do_not_fill_words_or_groups_are_not_stored():
    assert GptqLayout().group_for(24, 128, 128) == 128
    assert GptqLayout().group_for(20, 128, 128) is None and GptqLayout().group_for(24, 96, 64) is None
    assert PackedLayout().group_for(20, 128, 128) == 128 and PackedLayout().group_for(24, 96, 64) is None
    assert RowsLayout().group_for(3, 96, 64) == 96
