"""Decodes ggml's block types to codes and scales: those of 32 to 128 elements, the K types, the ternary ones; all
blocks at once.

Layouts: ggml-common.h and ggml-quants.c of llama.cpp; tests compare every value with the `gguf` package's dequantizer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from twostroke.ops.code_tables import IQ4_CODES, I8Array, e2m1_codes
from twostroke.ops.operands import F32Array, U8Array
from twostroke.ops.stored_values import I16Array, StoredValues
from twostroke.types.errors import UnsupportedModel
from twostroke.weights.gguf.bits import fields, halves
from twostroke.weights.gguf.block_types import BlockType
from twostroke.weights.gguf.grid_blocks import GRID_DECODERS

READ_AS_FLOATS = ("F32", "F16", "BF16", "I32")
"""The types whose numbers are read as float32. I32 is for tables of the experts of each token; float32 holds whole
numbers below 2^24 exactly."""


def decode(block: BlockType, raw: U8Array) -> StoredValues:
    """Decodes (n, block.num_bytes) uint8 to n blocks. Raises UnsupportedModel for types that hold no weights."""
    decoder = DECODERS.get(block.name)
    if decoder is None:
        raise UnsupportedModel(
            f"Weights of the type {block.name} cannot be read.",
            why="Read are " + ", ".join((*READ_AS_FLOATS, *DECODERS)) + ".",
            fix="Use another quantization of the same model.",
        )
    return decoder(raw)


def _nibbles(raw: U8Array) -> U8Array:
    """Unpacks (n, 16) to (n, 32): all low halves, then all high ones."""
    return fields(raw, 4).reshape(len(raw), -1)


def _signed(codes: U8Array, offset: int) -> I8Array:
    return codes.astype(np.int8) - np.int8(offset)


def _in_order(raw: U8Array, bits: int) -> U8Array:
    """Unpacks (n, k) bytes to (n, 8 k / bits) fields of `bits` bits, byte by byte, the lowest first."""
    return fields(raw[:, :, None], bits).reshape(len(raw), -1)


def _q1_0(raw: U8Array) -> StoredValues:
    """Decodes signs: a bit of 1 is the scale, and a bit of 0 is minus the scale."""
    return StoredValues(_signed(_in_order(raw[:, 2:], 1) << np.uint8(1), 1), halves(raw[:, :2]))


def _q2_0(raw: U8Array) -> StoredValues:
    return StoredValues(_signed(_in_order(raw[:, 2:], 2), 1), halves(raw[:, :2]))


def _q4_0(raw: U8Array) -> StoredValues:
    return StoredValues(_signed(_nibbles(raw[:, 2:]), 8), halves(raw[:, :2]))


def _q4_1(raw: U8Array) -> StoredValues:
    return StoredValues(_signed(_nibbles(raw[:, 4:]), 0), halves(raw[:, :2]), minimum_scales=-halves(raw[:, 2:4]))


def _five_bits(high: U8Array, low: U8Array) -> U8Array:
    fifth = np.unpackbits(np.ascontiguousarray(high), axis=-1, bitorder="little")
    return _nibbles(low) | (fifth << np.uint8(4))


def _q5_0(raw: U8Array) -> StoredValues:
    return StoredValues(_signed(_five_bits(raw[:, 2:6], raw[:, 6:]), 16), halves(raw[:, :2]))


def _q5_1(raw: U8Array) -> StoredValues:
    codes = _signed(_five_bits(raw[:, 4:8], raw[:, 8:]), 0)
    return StoredValues(codes, halves(raw[:, :2]), minimum_scales=-halves(raw[:, 2:4]))


def _q8_0(raw: U8Array) -> StoredValues:
    return StoredValues(np.ascontiguousarray(raw[:, 2:]).view(np.int8), halves(raw[:, :2]))


def _q2_k(raw: U8Array) -> StoredValues:
    codes = fields(raw[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 256)
    multipliers, minima = (raw[:, :16] & 15).astype(np.int16), (raw[:, :16] >> 4).astype(np.int16)
    return StoredValues(_signed(codes, 0), halves(raw[:, 80:82]), multipliers, halves(raw[:, 82:84]), minima)


def _q3_k(raw: U8Array) -> StoredValues:
    low = fields(raw[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 256)
    absent = fields(raw[:, :32], 1).reshape(-1, 256) ^ np.uint8(1)  # a set bit subtracts nothing
    scales = fields(raw[:, 96:104], 4).reshape(-1, 16) | (fields(raw[:, 104:108], 2).reshape(-1, 16) << np.uint8(4))
    return StoredValues(
        _signed(low, 0) - (absent << 2).astype(np.int8), halves(raw[:, 108:]), scales.astype(np.int16) - 32
    )


def _six_bit_pairs(packed: U8Array) -> tuple[I16Array, I16Array]:
    """Unpacks (n, 12) bytes to multipliers and minima, each (n, 8)."""
    first, second, both = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    multipliers = np.concatenate((first & 63, (both & 15) | ((first >> 2) & 48)), axis=1)
    minima = np.concatenate((second & 63, (both >> 4) | ((second >> 2) & 48)), axis=1)
    return multipliers.astype(np.int16), minima.astype(np.int16)


def _q4_k(raw: U8Array) -> StoredValues:
    multipliers, minima = _six_bit_pairs(raw[:, 4:16])
    codes = fields(raw[:, 16:].reshape(-1, 4, 32), 4).reshape(-1, 256)
    return StoredValues(_signed(codes, 0), halves(raw[:, :2]), multipliers, halves(raw[:, 2:4]), minima)


def _q5_k(raw: U8Array) -> StoredValues:
    multipliers, minima = _six_bit_pairs(raw[:, 4:16])
    low = fields(raw[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, 256)
    codes = low | (fields(raw[:, 16:48], 1).reshape(-1, 256) << np.uint8(4))
    return StoredValues(_signed(codes, 0), halves(raw[:, :2]), multipliers, halves(raw[:, 2:4]), minima)


def _q6_k(raw: U8Array) -> StoredValues:
    low = fields(raw[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 256)
    high = fields(raw[:, 128:192].reshape(-1, 2, 32), 2).reshape(-1, 256)
    multipliers = np.ascontiguousarray(raw[:, 192:208]).view(np.int8).astype(np.int16)
    return StoredValues(_signed(low | (high << np.uint8(4)), 32), halves(raw[:, 208:]), multipliers)


def _tq1_0(raw: U8Array) -> StoredValues:
    """Decodes bytes that each hold five numbers with three possible values, as the digits of a fraction."""
    places = np.array([1, 3, 9, 27, 81], np.uint8)
    parts = (
        raw[:, None, :32] * places[:, None],
        raw[:, None, 32:48] * places[:, None],
        raw[:, None, 48:52] * places[:4, None],
    )
    digits = np.concatenate([part.reshape(len(raw), -1) for part in parts], axis=1)
    return StoredValues(_signed(((digits.astype(np.uint16) * 3) >> 8).astype(np.uint8), 1), halves(raw[:, 52:]))


def _tq2_0(raw: U8Array) -> StoredValues:
    return StoredValues(_signed(fields(raw[:, :64].reshape(-1, 2, 32), 2).reshape(-1, 256), 1), halves(raw[:, 64:]))


def _iq4_nl(raw: U8Array) -> StoredValues:
    return StoredValues(IQ4_CODES[_nibbles(raw[:, 2:])], halves(raw[:, :2]))


def _iq4_xs(raw: U8Array) -> StoredValues:
    low = fields(raw[:, 4:8, None], 4).reshape(-1, 8)
    high = fields(raw[:, 2:4, None], 2).reshape(-1, 8)
    codes = IQ4_CODES[fields(raw[:, 8:].reshape(-1, 8, 16), 4).reshape(-1, 256)]
    return StoredValues(codes, halves(raw[:, :2]), (low | (high << np.uint8(4))).astype(np.int16) - 32)


def _mxfp4(raw: U8Array) -> StoredValues:
    """Decodes MXFP4. The scale is 2^(e - 128): half of the usual meaning of e, as the codes are doubled."""
    e = raw[:, :1].astype(np.uint32)
    bits = np.where(e < 2, np.uint32(0x00200000) << e, (e - np.uint32(1)) << np.uint32(23))
    return StoredValues(e2m1_codes(_nibbles(raw[:, 1:])), bits.astype(np.uint32).view(np.float32))


def _nvfp4(raw: U8Array) -> StoredValues:
    codes = fields(raw[:, 4:].reshape(-1, 4, 8), 4).reshape(-1, 64)
    return StoredValues(e2m1_codes(codes), _ue4m3(raw[:, :4]))


def _ue4m3(raw: U8Array) -> F32Array:
    """Returns the scales of NVFP4: half the value of an unsigned float of 4 exponent and 3 mantissa bits, since the
    codes are doubled. NaN counts as 0."""
    exponent, mantissa = (raw >> 3 & 15).astype(np.int32), (raw & 7).astype(np.float32)
    value = np.where(exponent == 0, np.ldexp(mantissa, -9), np.ldexp(1 + mantissa / np.float32(8), exponent - 7))
    return np.where(raw == 127, 0, value * np.float32(0.5)).astype(np.float32)


DECODERS: dict[str, Callable[[U8Array], StoredValues]] = {
    "Q1_0": _q1_0, "Q2_0": _q2_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0,
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
    "TQ1_0": _tq1_0, "TQ2_0": _tq2_0, "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs, "MXFP4": _mxfp4, "NVFP4": _nvfp4,
    **GRID_DECODERS,
}  # fmt: skip
