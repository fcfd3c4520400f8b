"""Matrices packed as the formats of the hub pack them, with the numbers that they represent. The code follows the
formats' descriptions, code by code, with Python's whole numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.lazily import torch

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Packed:
    """The tensors of a module by the end of their names, and the numbers as float64."""

    tensors: Tensors
    values: np.ndarray


def stream(codes: np.ndarray, bits: int) -> np.ndarray:
    """(n, k) codes -> (n, words) int32, lowest bits first."""
    words = -(-codes.shape[1] * bits // 32)
    found = np.zeros((len(codes), words), np.uint32)
    for row, line in enumerate(codes):
        whole = sum(int(code) << (place * bits) for place, code in enumerate(line))
        found[row] = np.frombuffer(whole.to_bytes(4 * words, "little"), np.uint32)
    return found.view(np.int32)


def tensor(values: np.ndarray, dtype: str | None = None) -> torch.Tensor:
    found = torch.from_numpy(np.ascontiguousarray(values))
    return found if dtype is None else found.to(getattr(torch, dtype))


@dataclass(frozen=True)
class Affine:
    """Random codes, scales and zero points: value = scale * (code - zero)."""

    codes: np.ndarray
    scales: torch.Tensor
    zeros: np.ndarray
    group_of: np.ndarray

    @property
    def values(self) -> np.ndarray:
        wide = self.scales.double().numpy()[:, self.group_of]
        return wide * (self.codes.astype(np.float64) - self.zeros[:, self.group_of])


def draw(
    rng: np.random.Generator,
    shape: tuple[int, int],
    bits: int,
    group: int,
    *,
    symmetric: bool = False,
    order: bool = False,
    dtype: str = "float16",
    scale: float = 0.3,
) -> Affine:
    """Random codes whose values are about as large as weights are."""
    rows, columns = shape
    size = group if group > 0 else columns
    groups = -(-columns // size)
    top = 1 << bits
    codes = rng.integers(0, top, shape)
    zeros = np.full((rows, groups), top // 2) if symmetric else rng.integers(1, top, (rows, groups))
    spread = rng.uniform(0.5, 1.5, (rows, groups)) * scale / top / np.sqrt(columns / 16)
    group_of = np.arange(columns) // size
    if order:  # activations would choose such an order: the same for all matrices with these inputs
        group_of = np.random.default_rng(columns).permutation(group_of)
    return Affine(codes, tensor(spread, dtype), zeros, group_of)


def gptq(drawn: Affine, bits: int, v1: bool = True, index: bool = True) -> Packed:
    tensors = {
        "qweight": tensor(stream(drawn.codes.T.T, bits).T),
        "qzeros": tensor(stream(drawn.zeros.T - int(v1), bits)),
        "scales": tensor(drawn.scales.T.contiguous().numpy()),
    }
    if index:
        tensors["g_idx"] = tensor(drawn.group_of.astype(np.int32))
    return Packed(tensors, drawn.values)


AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def awq_words(codes: np.ndarray) -> np.ndarray:
    """(n, k) -> (n, k / 8)."""
    found = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for place, column in enumerate(AWQ_ORDER):
        found |= codes[:, column::8].astype(np.uint32) << np.uint32(4 * place)
    return found.view(np.int32)


def awq(drawn: Affine) -> Packed:
    tensors = {
        "qweight": tensor(awq_words(drawn.codes.T)),
        "qzeros": tensor(awq_words(drawn.zeros.T)),
        "scales": drawn.scales.T.contiguous(),
    }
    return Packed(tensors, drawn.values)


def awq_gemv(drawn: Affine) -> Packed:
    groups = drawn.zeros.shape[1]
    words = -(-groups // 8)
    zeros = np.zeros((len(drawn.zeros), 8 * words), np.int64)
    zeros[:, :groups] = drawn.zeros
    scales = torch.zeros((len(drawn.zeros), 8 * words), dtype=torch.float16)
    scales[:, :groups] = drawn.scales
    tensors = {"qweight": tensor(stream(drawn.codes, 4)), "qzeros": tensor(stream(zeros, 4)), "scales": scales}
    return Packed(tensors, drawn.values)


def compressed_packed(drawn: Affine, bits: int, symmetric: bool, order: bool = False) -> Packed:
    tensors = {
        "weight_packed": tensor(stream(drawn.codes, bits)),
        "weight_scale": drawn.scales,
        "weight_shape": torch.tensor(drawn.codes.shape, dtype=torch.int64),
    }
    if not symmetric:
        tensors["weight_zero_point"] = tensor(stream(drawn.zeros.T, bits).T)
    if order:
        tensors["weight_g_idx"] = tensor(drawn.group_of.astype(np.int32))
    return Packed(tensors, drawn.values)


def mlx(rng: np.random.Generator, shape: tuple[int, int], bits: int, group: int, dtype: str) -> Packed:
    drawn = draw(rng, shape, bits, group, dtype=dtype)
    middle = drawn.scales.double().numpy() * rng.uniform(0.9, 1.1, drawn.zeros.shape) * (1 << bits) / 2
    biases = tensor(-middle, dtype)
    wide = drawn.scales.double().numpy()[:, drawn.group_of]
    values = wide * drawn.codes + biases.double().numpy()[:, drawn.group_of]
    words = tensor(stream(drawn.codes, bits).view(np.uint32))
    return Packed({"weight": words, "scales": drawn.scales, "biases": biases}, values)


def hqq(rng: np.random.Generator, shape: tuple[int, int], bits: float, group: int, axis: int = 1) -> Packed:
    """Zero points are no whole numbers. As in transformers' files, settings are stored next to the codes."""
    count = shape[0] * shape[1]
    grid = (count // group, group) if axis else (group, count // group)
    each = (grid[0], 1) if axis else (1, grid[1])
    said, levels = bits, 3 if bits == 1.58 else 1 << int(bits)
    codes = rng.integers(0, levels, grid)
    scale = tensor(rng.uniform(0.5, 2, each) * 0.05 / levels, "float16")
    zero = tensor(rng.uniform(0.2, 0.8, each) * levels, "float16")
    bits = {1.58: 2, 5: 8, 6: 8}.get(bits, int(bits))  # the bits of a code
    fractions = 10 if bits == 3 else 8 // bits
    rows = -(-grid[0] // fractions)
    packed = np.zeros((rows, grid[1]), np.int64)
    for row, line in enumerate(codes):
        packed[row % rows] += line << bits * (fractions - 1 - row // rows)
    name = {8: "8bit_u8", 4: "4bit_u8", 3: "3bit_32", 2: "2bit_u8"}[bits]
    settings = {"nbits": said, "group_size": group, "axis": axis}
    tensors = {key: torch.tensor(value) for key, value in settings.items()} | {
        "W_q": tensor(packed, "int32" if bits == 3 else "uint8"),
        "scale": scale, "zero": zero, "shape": torch.tensor(shape), "packing": torch.tensor(list(name.encode())).byte(),
        "view_as_float": torch.tensor(0, dtype=torch.uint8), "stores_quant_config": torch.tensor(1, dtype=torch.uint8),
    }  # fmt: skip
    return Packed(tensors, ((codes - zero.double().numpy()) * scale.double().numpy()).reshape(shape))


def e4m3(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[torch.Tensor, np.ndarray]:
    found = tensor(rng.normal(0, 60, shape), "float32").to(torch.float8_e4m3fn)
    return found, found.double().numpy()


def tiled(rng: np.random.Generator, shape: tuple[int, int], tile: tuple[int, int], name: str) -> Packed:
    codes, numbers = e4m3(rng, shape)
    grid = tuple(-(-size // part) for size, part in zip(shape, tile, strict=True))
    scales = tensor(rng.uniform(0.5, 2, grid) * 5e-4, "float32")
    spread = np.repeat(np.repeat(scales.double().numpy(), tile[0], 0), tile[1], 1)[: shape[0], : shape[1]]
    return Packed({"weight": codes, name: scales}, numbers * spread)


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def small_floats(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(..., k) random floats of 4 bits -> bytes with the even ones in their low halves, and the numbers."""
    codes = rng.integers(0, 16, shape)
    numbers = np.array(E2M1 + [-x for x in E2M1])[codes]
    return (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8), numbers


def nvfp4(rng: np.random.Generator, shape: tuple[int, int], *, divided: bool) -> Packed:
    codes, numbers = small_floats(rng, shape)
    scales = tensor(rng.uniform(1, 200, (shape[0], shape[1] // 16)), "float32").to(torch.float8_e4m3fn)
    whole = 9000.0 if divided else 1 / 9000.0
    spread = np.repeat(scales.double().numpy(), 16, axis=1)
    values = numbers * (spread / np.float32(whole) if divided else spread * np.float64(np.float32(whole)))
    names = (
        ("weight_packed", "weight_scale", "weight_global_scale")
        if divided
        else ("weight", "weight_scale", "weight_scale_2")
    )
    number = torch.tensor([whole] if divided else whole, dtype=torch.float32)
    return Packed(dict(zip(names, (tensor(codes), scales, number), strict=True)), values)


def mxfp4(rng: np.random.Generator, shape: tuple[int, int]) -> Packed:
    codes, numbers = small_floats(rng, shape)
    powers = rng.integers(118, 124, (shape[0], shape[1] // 32))
    values = numbers * np.repeat(2.0 ** (powers - 127.0), 32, axis=1)
    return Packed({"weight_packed": tensor(codes), "weight_scale": tensor(powers.astype(np.uint8))}, values)


NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip


def nf4(rng: np.random.Generator, shape: tuple[int, int], block: int = 64, nested: bool = False) -> Packed:
    count = shape[0] * shape[1]
    codes = rng.integers(0, 16, count)
    octets = (codes[::2] << 4 | codes[1::2]).astype(np.uint8)
    blocks = -(-count // block)
    table = torch.tensor(NF4, dtype=torch.float32)
    state: dict[str, object] = {"quant_type": "nf4", "blocksize": block, "dtype": "bfloat16", "shape": list(shape)}
    tensors = {"weight": tensor(octets[:, None]), "weight.quant_map": table}
    if nested:
        second = np.sort(rng.uniform(-1, 1, 256))
        absmax_codes = rng.integers(0, 256, blocks)
        scales = rng.uniform(0.02, 0.05, -(-blocks // 256))
        absmax = second.astype(np.float32)[absmax_codes].astype(np.float64) * np.repeat(scales.astype(np.float32), 256)[
            :blocks
        ] + np.float32(0.06)
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.06}
        tensors["weight.absmax"] = tensor(absmax_codes.astype(np.uint8))
        tensors["weight.nested_absmax"] = tensor(scales, "float32")
        tensors["weight.nested_quant_map"] = tensor(second, "float32")
    else:
        absmax = rng.uniform(0.05, 0.2, blocks).astype(np.float32)
        tensors["weight.absmax"] = tensor(absmax)
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    tensors["weight.quant_state.bitsandbytes__nf4"] = tensor(text.copy())
    spread = np.repeat(absmax.astype(np.float64), block)[:count]
    return Packed(tensors, (table.double().numpy()[codes] * spread).reshape(shape))


def int8_rows(rng: np.random.Generator, shape: tuple[int, int]) -> Packed:
    """bitsandbytes' int8: SCB is the largest magnitude of each row."""
    codes = rng.integers(-127, 128, shape).astype(np.int8)
    scales = tensor(rng.uniform(0.05, 0.2, shape[0]), "float32")
    values = codes * scales.double().numpy()[:, None] / 127
    return Packed({"weight": tensor(codes), "SCB": scales, "weight_format": torch.tensor(0, dtype=torch.uint8)}, values)


def int_scaled(rng: np.random.Generator, shape: tuple[int, int], group: int = 0, dtype: str = "bfloat16") -> Packed:
    """compressed-tensors' int-quantized."""
    codes = rng.integers(-128, 128, shape).astype(np.int8)
    groups = shape[1] // group if group else 1
    scales = tensor(rng.uniform(0.5, 1.5, (shape[0], groups)) * 1e-3, dtype)
    values = codes * np.repeat(scales.double().numpy(), group or shape[1], axis=1)
    return Packed({"weight": tensor(codes), "weight_scale": scales}, values)
