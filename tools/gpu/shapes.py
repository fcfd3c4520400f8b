"""Decode and prefill steps of models of published shapes, with weights that mean nothing: how long they take, and how
many bytes of weights a second that is.

Knows: programs, a device.
Must not know: checkpoints, other engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from twostroke.backends.cuda.device import CudaDevice
from twostroke.models.common.registry import read_model
from twostroke.ops.operands import PackedWeight
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.program.model import Model
from twostroke.quant.formats import format_choice
from twostroke.sampling.device_rows import SAMPLE_INPUT, SAMPLE_RESULT
from twostroke.spec.formats import PAGE_TOKENS, KVKind
from twostroke.types.errors import OutOfMemory
from twostroke.weights.loaded import ModelWeights

ROW = dict[str, Any]
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "num_key_value_heads": 8,
}
SHAPES = {
    "8B": LLAMA
    | {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 128256,
    },
    "1B": LLAMA
    | {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    "70B": LLAMA
    | {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "vocab_size": 128256,
    },
}
SMALL = {
    "tiny": LLAMA
    | {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "vocab_size": 300,
    }
}
"""The shapes for the emulator."""
FORMATS = (("int4", KVKind.INT8), ("int8", KVKind.INT8), ("bf16", KVKind.BF16))
STEPS = (("1 stream", 1, 1), ("16 streams", 16, 16), ("64 streams", 64, 64), ("a prompt of 128", 128, 1))
"""Name, rows, sequences."""
CONTEXT = 512


def any_weights(model: Model, weights: str, device: CudaDevice) -> ModelWeights:
    """Weights of meaningless bytes, each matrix at a place of its own on the device."""
    formats = format_choice(weights)
    sizes = [formats(each).data_bytes(each.rows, each.columns) for each in model.program.weights]
    noise = np.random.default_rng(1).integers(0, 256, max(sizes), np.uint8) & np.uint8(0xBF)  # bf16 below 2
    matrices = {}
    for each, num_bytes in zip(model.program.weights, sizes, strict=True):
        kind = formats(each)
        scales = np.full(kind.scale_bytes(each.rows, each.columns) // 2, 0x1000, np.uint16)
        packed = PackedWeight(kind, each.rows, each.columns, noise[:num_bytes], scales if scales.size else None)
        data = device.put(packed.data)
        matrices[each.key] = replace(packed, data=data, scales=None if packed.scales is None else device.put(scales))
    vectors = {each.key: device.put(np.ones(each.length, np.float32)) for each in model.program.vectors}
    return ModelWeights(matrices, vectors)


def write_step(memory: StepMemory, rows: int, sequences: int) -> StepSizes:
    """Each sequence has CONTEXT tokens, and its last rows are computed."""
    each, pages = rows // sequences, -(-CONTEXT // PAGE_TOKENS)
    memory.token_ids[:rows] = np.arange(rows) % 200
    positions = np.tile(np.arange(CONTEXT - each, CONTEXT, dtype=np.int32), sequences)
    memory.positions[:rows] = positions
    memory.batch.row_starts[: sequences + 1] = np.arange(sequences + 1) * each
    memory.batch.context_tokens[:sequences] = CONTEXT
    memory.logit_rows[:sequences] = np.arange(1, sequences + 1) * each - 1
    for group in memory.page_inputs:
        group.batch.page_table[:sequences, :pages] = np.arange(sequences * pages).reshape(sequences, pages)
        owner = np.repeat(np.arange(sequences), each)
        slots = group.batch.page_table[owner, positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
        group.slots[:rows] = slots
    return StepSizes(rows, sequences, sequences)


def time_steps(
    make: Callable[[], CudaDevice],
    shapes: dict[str, dict[str, Any]],
    timed: Callable[[Callable[[], object]], float],
    has_time: Callable[[], bool],
) -> Iterator[ROW]:
    """Seconds of a step with its sampling, one copy up and one down; greedy, and all logits of the weights read."""
    for shape, config in shapes.items():
        model = read_model(config)
        for weights, kv in FORMATS:
            what = f"{shape} {weights}, K and V {kv.name.lower()}, context {CONTEXT}"
            if not has_time():
                yield {"what": what, "not_run": "no time left"}
                continue
            device = make()
            try:
                yield from _steps_of(device, model, (weights, kv), what, timed)
            except OutOfMemory as error:
                yield {"what": what, "not_run": str(error)}
            device.close()


def _steps_of(
    device: CudaDevice,
    model: Model,
    formats: tuple[str, KVKind],
    what: str,
    timed: Callable[[Callable[[], object]], float],
) -> Iterator[ROW]:
    there, most = any_weights(model, formats[0], device), max(rows for _, rows, _ in STEPS)
    pages = max(sequences for _, _, sequences in STEPS) * -(-CONTEXT // PAGE_TOKENS)
    sizes = MemorySizes(pages, CONTEXT, most, max(sequences for _, _, sequences in STEPS))
    memory = StepMemory(model.program, there.matrices, there.vectors, formats[1], sizes, device)
    forward, num_bytes = device.compile(model.program, memory), model.weight_bytes(format_choice(formats[0]))
    for name, rows, sequences in STEPS:
        step = write_step(memory, rows, sequences)
        asked, results = np.zeros(sequences, SAMPLE_INPUT), np.zeros(sequences, SAMPLE_RESULT)
        asked["num_top"] = -1
        seconds = timed(lambda a=asked, t=results, s=step: forward.sampled(a, np.empty(0, np.uint8), t, s))
        row = {"what": f"{what}, {name}", "seconds": seconds, "rows_per_s": rows / seconds}
        yield row | {"bytes_per_s": num_bytes / seconds}
