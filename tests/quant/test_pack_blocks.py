"""ts_pack_blocks compared with `pack_stored`, bit for bit: every type of blocks in every kind that can hold it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.native import LEVELS
from twostroke.backends.cpu.packer import BLOCK_NUMBERS, NativePacker
from twostroke.ops.operands import U8Array
from twostroke.ops.stored_layout import holds_columns, pack_stored
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import STORED_GROUP, WeightFormat, WeightKind
from twostroke.weights.gguf.block_types import BLOCK_TYPES, BlockType
from twostroke.weights.gguf.blocks import decode
from twostroke.weights.stored import HELD

SCALES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,), "MXFP4": (), "NVFP4": (),
}  # fmt: skip
"""The places of the float16 numbers in a block."""

CASES = [
    pytest.param(block, kind, id=f"{block.name}-{kind.name}")
    for block in BLOCK_TYPES.values()
    if block.name in BLOCK_NUMBERS
    for kind, held in HELD
    if block.name in held
]


@pytest.fixture(scope="module", params=LEVELS)
def packer(request: pytest.FixtureRequest) -> NativePacker:
    return NativePacker(str(request.param), 1)


def random_blocks(block: BlockType, rows: int, columns: int, seed: int) -> U8Array:
    """Random bytes, with finite scales."""
    dice = np.random.default_rng(seed)
    raw = dice.integers(0, 256, (rows, columns // block.elements, block.num_bytes), np.uint8)
    for at in SCALES[block.name]:
        halves = dice.standard_normal((rows, columns // block.elements, 1)).astype(np.float16)
        raw[:, :, at : at + 2] = halves.view(np.uint8).reshape(rows, -1, 2)
    return raw.reshape(rows, -1)


def packed(
    packer: NativePacker, block: BlockType, raw: U8Array, columns: int, kind: WeightKind
) -> tuple[bool, U8Array]:
    """The result in a buffer with random contents, because padding must be written too."""
    data = np.full(WeightFormat(kind, STORED_GROUP).data_bytes(len(raw), columns), 0xA5, np.uint8)
    return packer.pack_blocks(block.name, raw, columns, kind, data), data


@pytest.mark.parametrize(("block", "kind"), CASES)
def test_the_layout_is_that_of_numpy(block: BlockType, kind: WeightKind, packer: NativePacker) -> None:
    for rows, columns in ((1, 256), (64, 512), (130, 96), (67, 352), (64, 768)):
        if columns % block.elements or not holds_columns(kind, columns):
            continue
        raw = random_blocks(block, rows, columns, rows)
        values = decode(block, raw.reshape(-1, block.num_bytes)).by_rows(rows)
        usable, data = packed(packer, block, raw, columns, kind)
        assert usable
        np.testing.assert_array_equal(data, pack_stored(values, WeightFormat(kind, STORED_GROUP)))


@pytest.mark.parametrize(("block", "kind"), CASES)
def test_a_scale_that_is_no_number_is_seen(block: BlockType, kind: WeightKind, packer: NativePacker) -> None:
    for at in SCALES[block.name]:
        for bits in (0x7C00, 0xFE01):
            raw = random_blocks(block, 70, 512, 1)
            last = raw.reshape(70, -1, block.num_bytes)[69, -1]
            last[at : at + 2] = np.array([bits], np.uint16).view(np.uint8)
            assert not packed(packer, block, raw, 512, kind)[0]


def test_what_does_not_fit_is_refused(packer: NativePacker) -> None:
    block = next(each for each in BLOCK_TYPES.values() if each.name == "Q4_K")
    raw = random_blocks(block, 64, 256, 2)
    for kind in (WeightKind.FLAT4, WeightKind.SUPER6, WeightKind.SUPER4_16, WeightKind.E2M1_32, WeightKind.INT8):
        with pytest.raises(BackendError, match="refused"):
            packed(packer, block, raw, 256, kind)
    with pytest.raises(BackendError, match="refused"):
        packed(packer, block, raw[:, 1:].copy(), 256, WeightKind.SUPER4_MIN)
    with pytest.raises(BackendError, match="refused"):
        packer.pack_blocks("Q4_K", raw, 256, WeightKind.SUPER4_MIN, np.empty(16, np.uint8))
