"""Weights and KV pages without real content: one block of memory, used as matrices and pages of every format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twostroke.models.common.registry import read_model
from twostroke.models.common.work import work_of
from twostroke.ops.operands import KVLayer, PackedWeight, U8Array, paged
from twostroke.ops.program.model import F32_BYTES, Model
from twostroke.types.first_use.made_once import made_once
from twostroke.types.spec.formats import PAGE_TOKENS, PANEL_ROWS, KVKind, WeightFormat

BYTES = np.array([0x3B, 0x3C, 0x3D, 0xBB, 0xBC, 0xBD], np.uint8)
"""The byte values of synthetic memory. In any order they form float32 and bf16 numbers of magnitude 0.003 to 0.05, and
usable int8 and int4 numbers."""

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class LayerShape:
    """The sizes of a layer of the Llama family."""

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int

    @made_once
    def model(self) -> Model:
        """A model that consists of one such layer."""
        return read_model(
            {
                "architectures": ["LlamaForCausalLM"],
                "vocab_size": PANEL_ROWS,
                "hidden_size": self.hidden,
                "num_hidden_layers": 1,
                "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads,
                "head_dim": self.head_dim,
                "intermediate_size": self.inner,
            }
        )

    @made_once
    def matrices(self) -> dict[str, tuple[int, int]]:
        """The layer's matrices by role, in the order of the program: (output features, input features)."""
        roles = {"qkv", "o", "gate_up", "down"}
        return {each.role: (each.rows, each.columns) for each in self.model.program.weights if each.role in roles}

    @property
    def weights(self) -> int:
        """The number of elements of all matrices."""
        return sum(rows * columns for rows, columns in self.matrices.values())

    @property
    def features(self) -> int:
        """The number of inputs and outputs of all matrices."""
        return sum(rows + columns for rows, columns in self.matrices.values())

    def other_bytes(self) -> int:
        """Returns the activation bytes that one row moves in the remaining ops: all but products, attention and
        embedding."""
        table = work_of(self.model, "f32", KVKind.BF16)
        return table.other_row.activation_bytes - F32_BYTES * self.hidden


LARGE = LayerShape(2048, 8192, 32, 8, 64)
"""The layer of Llama-3.2-1B. Nearly all of a product's time is spent on the weights."""

SMALL = LayerShape(256, 768, 4, 2, 64)
"""The layer of the demo model that Twostroke brings. In a product of this size, quantizing inputs and writing outputs
takes about as long as reading the weights."""


def random_memory(num_bytes: int) -> U8Array:
    """Returns (num_bytes,) uint8 at a 64-byte boundary. All pages are touched, and no number is denormal in any format.
    """
    room = np.empty(num_bytes + 64, np.uint8)
    memory: U8Array = room[-room.ctypes.data % 64 :][:num_bytes]
    block = np.random.default_rng(0).choice(BYTES, BLOCK_BYTES)
    for first in range(0, num_bytes, BLOCK_BYTES):
        piece = memory[first : first + BLOCK_BYTES]
        piece[:] = block[: len(piece)]
    return memory


@dataclass(frozen=True, eq=False)
class Layer:
    """The matrices of one layer, by their roles."""

    qkv: PackedWeight
    o: PackedWeight
    gate_up: PackedWeight
    down: PackedWeight


def layers_in(memory: U8Array, shape: LayerShape, weight_format: WeightFormat, most_bytes: int) -> list[Layer]:
    """Returns as many layers as fit one after the other into the first `most_bytes` of `memory`; at least one."""
    found: list[Layer] = []
    at = 0
    step = sum(
        _aligned(weight_format.data_bytes(*sizes)) + _aligned(weight_format.scale_bytes(*sizes))
        for sizes in shape.matrices.values()
    )
    while not found or at + step <= min(most_bytes, memory.nbytes):
        matrices: dict[str, PackedWeight] = {}
        for role, (rows, columns) in shape.matrices.items():
            data_bytes = weight_format.data_bytes(rows, columns)
            scale_bytes = weight_format.scale_bytes(rows, columns)
            data = memory[at : at + data_bytes]
            at += _aligned(data_bytes)
            scales = memory[at : at + scale_bytes].view(np.uint16) if scale_bytes else None
            at += _aligned(scale_bytes)
            matrices[role] = PackedWeight(weight_format, rows, columns, data, scales)
        found.append(Layer(**matrices))
    return found


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64


def pages_in(memory: U8Array, kind: KVKind, shape: LayerShape) -> KVLayer:
    """Returns all of `memory` as KV pages of a layer."""
    kv_heads, head_dim = shape.kv_heads, shape.head_dim
    page_bytes = kv_heads * PAGE_TOKENS * kind.token_bytes(head_dim)
    pages = memory.nbytes // page_bytes
    return KVLayer(kind, kv_heads, head_dim, paged(kind, memory[: pages * page_bytes], pages, kv_heads))
