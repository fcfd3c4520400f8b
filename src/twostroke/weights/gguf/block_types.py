"""ggml's tensor types: their numbers and names, and the number of bytes that store a number of elements.

Source: GGML_QUANT_SIZES of the `gguf` package 0.19.0; a test compares the two tables. Q2_0 is newer: ggml.h and
ggml-common.h of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class BlockType(Struct, frozen=True):
    """`elements` neighbouring numbers of a row are stored in `num_bytes` bytes."""

    name: str
    elements: int
    num_bytes: int


BLOCK_TYPES: dict[int, BlockType] = {
    number: BlockType(name, elements, num_bytes)
    for number, name, elements, num_bytes in (
        (0, "F32", 1, 4), (1, "F16", 1, 2), (30, "BF16", 1, 2), (28, "F64", 1, 8),
        (24, "I8", 1, 1), (25, "I16", 1, 2), (26, "I32", 1, 4), (27, "I64", 1, 8),
        (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20), (6, "Q5_0", 32, 22), (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34), (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110), (12, "Q4_K", 256, 144), (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210), (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66), (17, "IQ2_XS", 256, 74), (22, "IQ2_S", 256, 82),
        (18, "IQ3_XXS", 256, 98), (21, "IQ3_S", 256, 110), (19, "IQ1_S", 256, 50), (29, "IQ1_M", 256, 56),
        (20, "IQ4_NL", 32, 18), (23, "IQ4_XS", 256, 136),
        (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66), (39, "MXFP4", 32, 17), (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18), (42, "Q2_0", 64, 18),
    )
}  # fmt: skip

FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 40: "Q1_0",
}  # fmt: skip
"""The names of whole files by `general.file_type` (llama.h, llama_ftype)."""


def file_type(values: Mapping[str, object]) -> str:
    """Returns the name of a file's mixture of block types, such as "Q4_K_M"; "" where the header names no known one.
    values: the header's values by key."""
    number = values.get("general.file_type")
    return FILE_TYPES.get(number, "") if isinstance(number, int) else ""
