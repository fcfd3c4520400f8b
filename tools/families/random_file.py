"""A GGUF file of a family's shape with random blocks, in the types that llama.cpp's mix gives its tensors.

Only a piece of a tensor is in memory at a time: it is drawn and written. The random numbers of a tensor depend on its
name only, so a shape with fewer layers has the same first layers.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tools.families.random_blocks import BLOCKS, RandomBlock

from twostroke.models.common.registry import read_model
from twostroke.ops.operands import F32Array
from twostroke.ops.program.model import Model
from twostroke.quantize.driver.tensor_file import require_room
from twostroke.quantize.gguf.container import GgufTensorToWrite, KeyValue, write_gguf
from twostroke.quantize.gguf.keys import general_keys
from twostroke.quantize.gguf.names import StoredPlan
from twostroke.quantize.gguf.write import MIXES, Described, describe, mixed_type
from twostroke.weights.gguf.vocabulary.token_list import NORMAL, PREFIX

PIECE_BYTES = 32 << 20
MXFP4 = "MXFP4"
"""The mix of gpt-oss's files: experts in MXFP4, all other matrices in Q8_0."""
MXFP4_FILE_TYPE = 38
WIDE = "Q8_0"


def write_random(config: Mapping[str, Any], mix: str, path: Path) -> None:
    """Write the GGUF file of the model of a config.json. mix: a name of MIXES, or MXFP4. Raises ModelError or
    ConfigError."""
    model = read_model(dict(config))
    vocabulary = _vocabulary(model.vocab_size)
    found = _describe(config, model, vocabulary)
    number = MXFP4_FILE_TYPE if mix == MXFP4 else MIXES[mix].file_type
    keys = {**general_keys(found.arch, path.stem, number), **found.keys, **vocabulary}
    tied = "output.weight" not in found.plans
    tensors = {name: _tensor(plan, _type(plan, model.num_layers, tied, mix)) for name, plan in found.plans.items()}
    tensors |= {name: _vector(np.array(each, np.float32)) for name, each in found.divisors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    require_room(path.parent, sum(tensor.num_bytes for tensor in tensors.values()))
    write_gguf(path, keys, tensors)


def described(config: Mapping[str, Any]) -> tuple[str, list[StoredPlan]]:
    """Returns general.architecture of the file and its tensors. Raises ModelError."""
    model = read_model(dict(config))
    found = _describe(config, model, _vocabulary(model.vocab_size))
    return found.arch, list(found.plans.values())


def _describe(config: Mapping[str, Any], model: Model, vocabulary: Mapping[str, KeyValue]) -> Described:
    return describe(dict(config), model, _shapes(model), _nothing, vocabulary, None, MIXES[WIDE])


def _nothing(name: str) -> F32Array:
    """Raises KeyError: no family of this module keeps numbers of the config in tensors."""
    raise KeyError(name)


def _shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the tensors that the program reads, by name."""
    program = model.program
    parts = [part for weight in program.weights for part in (*weight.parts, *weight.bias)]
    parts += [part for vector in program.vectors for part in vector.parts]
    return {part.name: part.shape for part in parts}


def _vocabulary(size: int) -> dict[str, KeyValue]:
    """Returns a byte-level BPE vocabulary with one merge. Both engines load it, and no text is read with it."""
    return {
        PREFIX + "model": "gpt2",
        PREFIX + "pre": "gpt-2",
        PREFIX + "tokens": ["t", "0", *(f"t{index}" for index in range(size - 2))],
        PREFIX + "token_type": [NORMAL] * size,
        PREFIX + "merges": ["t 0"],
        PREFIX + "bos_token_id": 0,
        PREFIX + "eos_token_id": 1,
    }


def _type(plan: StoredPlan, layers: int, tied: bool, mix: str) -> RandomBlock | None:
    """Returns the block type of a tensor in a mix, or None for float32."""
    base = MIXES[WIDE if mix == MXFP4 else mix]
    kind = mixed_type(plan, layers, tied, base).name
    if mix == MXFP4 and plan.stem.endswith("_exps") and kind == WIDE:
        kind = MXFP4
    return None if kind == "F32" else BLOCKS[kind]


def _tensor(plan: StoredPlan, block: RandomBlock | None) -> GgufTensorToWrite:
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(plan.name.encode())))
    if block is None:
        return _vector(_numbers(plan, generator))
    kind = block
    count = math.prod(plan.shape) // kind.elements
    std = 1.0 / math.sqrt(plan.shape[-1])

    def chunks() -> Iterator[memoryview]:
        each = PIECE_BYTES // kind.num_bytes
        for first in range(0, count, each):
            yield kind.draw(generator, min(each, count - first), std).reshape(-1).data

    return GgufTensorToWrite(kind.number, plan.shape, count * kind.num_bytes, chunks)


def _vector(values: NDArray[np.float32]) -> GgufTensorToWrite:
    octets = values.reshape(-1).view(np.uint8)
    return GgufTensorToWrite(0, values.shape, octets.nbytes, lambda: iter((octets.data,)))


def _numbers(plan: StoredPlan, generator: np.random.Generator) -> NDArray[np.float32]:
    """Returns the values of a float32 tensor. Decays and steps lie in the ranges that training begins with, factors lie
    around one, and other values are small."""
    draw = generator.uniform
    if plan.stem == "ssm_a":
        values = -draw(1.0, 16.0, plan.shape)
    elif plan.name.endswith("ssm_dt.bias"):
        values = draw(-6.9, -2.2, plan.shape)
    elif plan.stem == "ssm_d":
        values = np.ones(plan.shape)
    elif plan.stem.endswith("_norm"):
        values = draw(0.8, 1.2, plan.shape)
    else:
        std = 1.0 / math.sqrt(plan.shape[-1]) if len(plan.shape) > 1 else 0.02
        values = std * generator.standard_normal(plan.shape)
    return values.astype(np.float32)
