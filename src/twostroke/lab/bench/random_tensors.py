"""Writes a safetensors file of random numbers for any model. It holds the tensors that the model's program reads, and
no others.

The numbers are uniform. They are made from the raw 16-bit pieces of PCG64 by exact arithmetic, so a file has the same
bytes on every machine and with every version of NumPy. Each tensor has its own draws, so that a further tensor changes
no other.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twostroke.ops.operands import F32Array, f32_to_bf16
from twostroke.ops.products.embed import Embed
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import signature
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Tensor, Vector, VectorForm
from twostroke.ops.rows.pointwise import Pointwise

Progress = Callable[[int, int, str], None]

EMBEDDING_STD, BIAS_STD, NORM_STD = 0.02, 0.02, 0.1
"""The standard deviations of embedding tables, of biases and other vectors, and of the weights of norms, whose mean is
1."""
UNIFORM_STD = 2.0**15 / math.sqrt(3.0)
"""The standard deviation of whole numbers from -2^15 to 2^15 - 1 that are all equally likely."""
ELEMENT_BYTES = {"F32": 4, "BF16": 2}


@dataclass(frozen=True, slots=True)
class _Draw:
    """A tensor to be filled with uniform random numbers of this mean and standard deviation."""

    tensor: Tensor
    mean: float
    std: float


def write_tensors(
    model: Model,
    path: Path,
    dtype: str = "BF16",
    embedding_std: float = EMBEDDING_STD,
    progress: Progress | None = None,
) -> None:
    """Writes the file. dtype: "BF16" or "F32". Matrices are scaled so that activations keep their size.

    Only one tensor at a time is in memory. The file gets its name once it is complete.
    """
    draws = list({draw.tensor.name: draw for draw in _draws(model.program, embedding_std)}.values())
    header: dict[str, dict[str, object]] = {}
    ends, offset = [], 0
    for draw in draws:
        begin, offset = offset, offset + ELEMENT_BYTES[dtype] * math.prod(draw.tensor.shape)
        ends.append(offset)
        header[draw.tensor.name] = {
            "dtype": dtype,
            "shape": list(draw.tensor.shape),
            "data_offsets": [begin, offset],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for draw, end in zip(draws, ends, strict=True):
            values = _numbers(draw)
            file.write((values if dtype == "F32" else f32_to_bf16(values)).tobytes())
            if progress is not None:
                progress(end, offset, draw.tensor.name)
    partial.rename(path)


def _draws(program: Program, embedding_std: float) -> Iterator[_Draw]:
    tables = {call.table for call in program.calls if isinstance(call, Embed)}
    for weight in program.weights:
        std = embedding_std if weight in tables else 1.0 / math.sqrt(weight.columns)
        yield from (_Draw(part, 0.0, std) for part in weight.parts)
        yield from (_Draw(part, 0.0, BIAS_STD) for part in weight.bias)
    factors = _factors(program)
    for vector in program.vectors:
        mean, std = (1.0 - vector.plus, NORM_STD) if vector in factors else (0.0, BIAS_STD)
        yield from (_Draw(part, mean, std) for part in vector.parts)


def _factors(program: Program) -> set[Vector]:
    """Returns the vectors by whose numbers rows are multiplied, such as those of norms. They are the operands named
    `weight`, and the vectors of pointwise calls that read a number for each column. Vectors of the forms
    DIFFERENCE and SHARED_BIAS are left out: their tensors have small numbers, not factors near 1."""
    return {
        item
        for call in program.calls
        for operand, item in zip(signature(type(call)), call.operands(), strict=True)
        if operand.name == "weight" or (isinstance(call, Pointwise) and call.reads_columns)
        if isinstance(item, Vector) and item.form not in (VectorForm.DIFFERENCE, VectorForm.SHARED_BIAS)
    }


def _numbers(draw: _Draw) -> F32Array:
    count = math.prod(draw.tensor.shape)
    raw = np.random.PCG64(zlib.crc32(draw.tensor.name.encode())).random_raw(-(-count // 4))
    values = np.asarray(raw, "<u8").view("<i2")[:count].astype(np.float32)
    values *= np.float32(draw.std / UNIFORM_STD)
    values += np.float32(draw.mean)
    return values.reshape(draw.tensor.shape)
