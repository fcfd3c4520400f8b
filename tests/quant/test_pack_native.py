"""ts_pack compared with ops/quant/codec.py, bit for bit, at every level that this machine runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.native import FORMATS, IN_FEATURES, INTEGER_FORMATS, LEVELS, OUT_FEATURES, format_id, random_weight
from tests.tiers import examples
from twostroke.backends.cpu.library import load_library
from twostroke.backends.cpu.packer import NativePacker
from twostroke.ops.operands import F32Array, PackedWeight, U8Array, U16Array, bf16_to_f32, f32_to_bf16
from twostroke.ops.quant.codec import pack_weight
from twostroke.types.errors import CorruptModel
from twostroke.types.spec.formats import F32, WeightFormat, WeightKind

GROUPED = [*INTEGER_FORMATS, WeightFormat(WeightKind.SUPER6, 256), WeightFormat(WeightKind.SUPER6, 256, 64)]
all_formats = pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)


@pytest.fixture(params=LEVELS, scope="module")
def packer(request: pytest.FixtureRequest) -> Iterator[NativePacker]:
    packer = NativePacker(str(request.param), 2)
    yield packer
    packer.close()


def native(
    packer: NativePacker, source: F32Array | U16Array, weight_format: WeightFormat
) -> tuple[U8Array, U16Array | None]:
    """The result in buffers with random contents, because padding must be written too."""
    rows, columns = source.shape
    data = np.full(weight_format.data_bytes(rows, columns), 0xA5, np.uint8)
    room = weight_format.scale_bytes(rows, columns) // 2
    scales = np.full(room, 0xA5A5, np.uint16) if room else None
    packer.pack(source, weight_format, data, scales)
    return data, scales


def check(
    packer: NativePacker, values: F32Array, weight_format: WeightFormat, expected: PackedWeight | None = None
) -> None:
    expected = expected or pack_weight(values, weight_format)
    data, scales = native(packer, values, weight_format)
    np.testing.assert_array_equal(data, expected.data)
    if expected.scales is not None:
        np.testing.assert_array_equal(scales, expected.scales)


@all_formats
@pytest.mark.parametrize("columns", IN_FEATURES)
@pytest.mark.parametrize("rows", OUT_FEATURES)
def test_pack_is_the_codec(rows: int, columns: int, weight_format: WeightFormat, packer: NativePacker) -> None:
    values = np.random.default_rng([rows, columns]).standard_normal((rows, columns), dtype=np.float32)
    check(packer, values, weight_format, random_weight(rows, columns, weight_format, with_bias=False))


@all_formats
def test_bf16_sources_are_widened_exactly(weight_format: WeightFormat, packer: NativePacker) -> None:
    bits = f32_to_bf16(np.random.default_rng(1).standard_normal((65, 127), dtype=np.float32))
    expected = pack_weight(bf16_to_f32(bits), weight_format)
    data, _ = native(packer, bits, weight_format)
    np.testing.assert_array_equal(data, expected.data)


# Few distinct magnitudes: ties between candidates, halves to round, zeros, groups below 2^-100 and near 2^60.
awkward = st.sampled_from([0.0, 1.0, -1.0, 0.5, -0.5, 7.0, -8.0, 3.5, 1e-3, 2.0**-101, -(2.0**-99), 1e-38, 1e17, -1e18])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(awkward, min_size=1, max_size=64), st.integers(1, 3), st.sampled_from(GROUPED))
def test_awkward_groups_too(packer: NativePacker, values: list[float], rows: int, weight_format: WeightFormat) -> None:
    check(packer, np.tile(np.array(values, np.float32), (rows, 1)), weight_format)


@all_formats
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**60])
def test_unusable_values_are_refused(weight_format: WeightFormat, bad: float, packer: NativePacker) -> None:
    values = np.ones((130, 40), np.float32)
    values[129, 39] = bad
    with pytest.raises(CorruptModel):
        native(packer, values, weight_format)
    values[129, 39] = np.nextafter(np.float32(2.0**60), np.float32(0))
    check(packer, values, weight_format)


@pytest.mark.parametrize("place", [(0, 0), (7, 7), (8, 15), (63, 42), (64, 40), (69, 3), (70, 42)])
@pytest.mark.parametrize("bits", [False, True], ids=["f32", "bf16"])
def test_an_unusable_value_is_found_in_any_place(place: tuple[int, int], bits: bool, packer: NativePacker) -> None:
    """Most values are read eight by eight, and those of the last rows and columns alone."""
    values = np.ones((71, 43), np.float32)
    values[place] = -np.inf
    with pytest.raises(CorruptModel):
        native(packer, f32_to_bf16(values) if bits else values, GROUPED[0])


@all_formats
@pytest.mark.parametrize("level", LEVELS)
def test_row_ranges_make_the_whole(weight_format: WeightFormat, level: str) -> None:
    values = np.random.default_rng(9).standard_normal((200, 96), dtype=np.float32)
    expected = pack_weight(values, weight_format)
    data = np.zeros_like(expected.data)
    scales = None if expected.scales is None else np.zeros_like(expected.scales)
    library = load_library(level)
    context = library.ts_context_create(2)
    scales_at = None if scales is None else scales.ctypes.data
    shape = (int(weight_format.kind), weight_format.group, 200, 96, data.ctypes.data, scales_at, weight_format.rotated)
    for first, count in ((128, 72), (0, 64), (64, 64)):
        source = np.ascontiguousarray(values[first : first + count])
        assert library.ts_pack(context, source.ctypes.data, 0, 96, first, count, *shape) == 0
    np.testing.assert_array_equal(data, expected.data)
    if expected.scales is not None:
        np.testing.assert_array_equal(scales, expected.scales)
    for first, count in ((0, 63), (1, 64), (128, 73), (-64, 64)):
        assert library.ts_pack(context, values.ctypes.data, 0, 96, first, count, *shape) == -1
    library.ts_context_destroy(context)


def test_a_short_stride_is_refused() -> None:
    library = load_library("generic")
    context = library.ts_context_create(1)
    values, data = np.zeros((64, 8), np.float32), np.zeros(64 * 8 * 4, np.uint8)
    arguments = (0, 7, 0, 64, int(F32.kind), 0, 64, 8, data.ctypes.data, None, 0)
    assert library.ts_pack(context, values.ctypes.data, *arguments) == -1
    library.ts_context_destroy(context)
