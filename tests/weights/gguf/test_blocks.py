"""Every block type, compared with the dequantizer of the `gguf` package, bit for bit, on random and on extreme
blocks."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from twostroke.types.errors import UnsupportedModel
from twostroke.weights.gguf.block_types import BLOCK_TYPES, FILE_TYPES, BlockType, file_type
from twostroke.weights.gguf.blocks import DECODERS, decode
from twostroke.weights.gguf.grids import GRIDS, grid

NUMBER_OF = {block.name: number for number, block in BLOCK_TYPES.items()}
HALF_PLACES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,), "IQ4_NL": (0,), "IQ4_XS": (0,),
    "Q1_0": (0,), "Q2_0": (0,),
    "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,), "IQ1_S": (0,),
}  # fmt: skip
"""The places of float16 numbers in a block. Random bytes there would sometimes be infinite or NaN."""
WITHOUT_WEIGHTS = ("Q8_K", "Q8_1", "I8", "I16", "I32", "I64", "F64")
NEWER = {42: ("Q2_0", 64, 18)}
"""Types of ggml.h that the package does not know yet."""


def one_by_one(name: str, block: np.ndarray) -> list[float]:
    """The values of a block of Q1_0 or Q2_0, as dequantize_row_q1_0 and dequantize_row_q2_0 of ggml-quants.c loop."""
    d, codes, bits = float(block[:2].view(np.float16)[0]), block[2:], {"Q1_0": 1, "Q2_0": 2}[name]
    found = []
    for j in range(len(codes) * 8 // bits):
        q = int(codes[j * bits // 8]) >> (j * bits % 8) & ((1 << bits) - 1)
        found.append((d if q else -d) if name == "Q1_0" else (q - 1) * d)
    return found


def random_blocks(name: str, count: int, seed: int = 0) -> np.ndarray:
    """(count, bytes) random bytes with finite scales of both signs, some of them 0 or the smallest possible number."""
    generator = np.random.default_rng(seed)
    raw = generator.integers(0, 256, (count, BLOCK_TYPES[NUMBER_OF[name]].num_bytes), np.uint8)
    for place in HALF_PLACES.get(name, ()):
        scales = generator.normal(0, 0.05, count).astype(np.float16)
        scales[: count // 8] = generator.choice(np.array([0, -0.0, 6e-8, 65504, -65504], np.float16), count // 8)
        raw[:, place : place + 2] = scales.view(np.uint8).reshape(count, 2)
    if name == "IQ1_M":  # the scale's highest four bits, which contain the sign and the exponent
        raw[:, 55] &= 0x3F
    if name == "MXFP4":
        raw[:, 0] %= 250
    return raw


def test_the_table_is_that_of_the_package():
    stated = {int(t): (t.name, *GGML_QUANT_SIZES[t]) for t in GGMLQuantizationType if t in GGML_QUANT_SIZES}
    ours = {number: (block.name, block.elements, block.num_bytes) for number, block in BLOCK_TYPES.items()}
    assert ours == {**NEWER, **stated}


@pytest.mark.parametrize("name", ["Q1_0", "Q2_0"])
def test_every_value_of_a_type_that_the_package_does_not_decode(name):
    raw = random_blocks(name, 128)
    expected = np.array([one_by_one(name, block) for block in raw], np.float32)
    found = decode(BLOCK_TYPES[NUMBER_OF[name]], raw).values()
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", sorted(DECODERS.keys() - {"Q1_0", "Q2_0"}))
def test_every_value_is_the_package_s(name):
    raw = random_blocks(name, 512)
    expected = dequantize(raw, GGMLQuantizationType[name])
    found = decode(BLOCK_TYPES[NUMBER_OF[name]], raw).values()
    assert found.dtype == np.float32 and found.shape == expected.shape
    assert np.isfinite(expected).all()
    assert np.array_equal(found.view(np.uint32), expected.astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"])
def test_what_the_package_quantized_comes_back(name):
    values = np.random.default_rng(1).normal(0, 1, (8, 512)).astype(np.float32)
    raw = quantize(values, GGMLQuantizationType[name])
    block = BLOCK_TYPES[NUMBER_OF[name]]
    found = decode(block, raw.reshape(-1, block.num_bytes)).values().reshape(values.shape)
    assert np.array_equal(found, dequantize(raw, GGMLQuantizationType[name]))
    assert np.abs(found - values).max() < (3 if name.startswith("TQ") else 1)


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_grids(name):
    theirs = getattr(gguf.quants, name)
    theirs.init_grid()
    assert np.array_equal(grid(name), theirs.grid.reshape(theirs.grid_shape))


def test_every_type_of_the_table_is_decoded_or_holds_no_blocks_of_weights():
    assert NUMBER_OF.keys() - DECODERS.keys() == {"F32", "F16", "BF16", *WITHOUT_WEIGHTS}


def test_what_holds_no_weights_is_refused_by_name():
    for name in WITHOUT_WEIGHTS:
        block = BLOCK_TYPES[NUMBER_OF[name]]
        with pytest.raises(UnsupportedModel, match=name):
            decode(block, np.zeros((1, block.num_bytes), np.uint8))
    with pytest.raises(UnsupportedModel, match="odd"):
        decode(BlockType("odd", 32, 3), np.zeros((1, 3), np.uint8))


def test_names_of_files_are_those_of_the_gguf_package() -> None:
    known = {int(each): each.name.removeprefix("MOSTLY_").removeprefix("ALL_") for each in gguf.LlamaFileType}
    for number, name in FILE_TYPES.items():
        assert known.get(number, name).removesuffix("_MOE") == name
    assert file_type({"general.file_type": 15}) == "Q4_K_M"
    assert file_type({"general.file_type": 4}) == file_type({"general.file_type": "15"}) == file_type({}) == ""
