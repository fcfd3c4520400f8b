"""Times decode and prefill steps of models of published shapes, with weights that mean nothing. Also tells how many
bytes of weights a second that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tools.gpu.step_inputs import write_step
from tools.gpu.weights_there import any_weights

from twostroke.backends.cuda.device import CudaDevice
from twostroke.models.common.registry import read_model
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice
from twostroke.ops.program.values import Weight
from twostroke.ops.quant.formats import KEPT_WIDE, format_choice
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.device.rows import SAMPLE_INPUT, SAMPLE_RESULT
from twostroke.types.errors import OutOfMemory
from twostroke.types.spec.formats import F32, PAGE_TOKENS, STORED_GROUP, KVKind, WeightFormat, WeightKind

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


def stored(kind: WeightKind) -> FormatChoice:
    """Returns a choice that stores every matrix in a kind that keeps a file's codes. Matrices whose columns are no
    whole groups are stored in FLAT8."""

    def choose(weight: Weight) -> WeightFormat:
        if weight.role in KEPT_WIDE:
            return F32
        return WeightFormat(kind if weight.columns % STORED_GROUP == 0 else WeightKind.FLAT8, STORED_GROUP)

    return choose


FORMATS = (
    ("int4", format_choice("int4"), KVKind.INT8),
    ("int8", format_choice("int8"), KVKind.INT8),
    ("bf16", format_choice("bf16"), KVKind.BF16),
    ("Q4_K", stored(WeightKind.SUPER4_MIN), KVKind.INT8),
)
"""The name, the formats of weights and the format of K and V of each pair."""
STEPS = (
    ("1 stream", 1, 1),
    ("16 streams", 16, 16),
    ("64 streams", 64, 64),
    ("a prompt of 128", 128, 1),
    ("a prompt of 2048", 2048, 1),
)
"""The name, the rows and the sequences of each step."""
CONTEXT = 512
LONGEST_S = 4.0
"""The longest step in seconds. A step that would take longer, estimated from a step with fewer rows, is not run."""


SMALL_STEPS = STEPS[:2]
"""The steps for the emulator."""


def time_steps(
    make: Callable[[], CudaDevice],
    shapes: dict[str, dict[str, Any]],
    steps: tuple[tuple[str, int, int], ...],
    timed: Callable[[Callable[[], object]], float],
    has_time: Callable[[], bool],
) -> Iterator[ROW]:
    """Yields the seconds of each greedy step, including sampling, one copy to the device and one back. The bytes a
    second of decode steps count all weights as read once."""
    for shape, config in shapes.items():
        model = read_model(config)
        for weights, formats, kv in FORMATS:
            what = f"{shape} {weights}, K and V {kv.name.lower()}, context {CONTEXT}"
            if not has_time():
                yield {"what": what, "not_run": "no time left"}
                continue
            device = make()
            try:
                yield from _steps_of(device, model, (formats, kv), what, steps, timed)
            except OutOfMemory as error:
                yield {"what": what, "not_run": f"weights and pages do not fit: {error}"}
            finally:
                device.close()


def _steps_of(
    device: CudaDevice,
    model: Model,
    formats: tuple[FormatChoice, KVKind],
    what: str,
    steps: tuple[tuple[str, int, int], ...],
    timed: Callable[[Callable[[], object]], float],
) -> Iterator[ROW]:
    num_bytes, before = model.weight_bytes(formats[0]), time.perf_counter()
    if num_bytes > device.facts.free_bytes:
        yield {"what": what, "not_run": f"weights of {num_bytes / 1e9:.0f} GB do not fit"}
        return
    there = any_weights(model, formats[0], device)
    most, streams = max(rows for _, rows, _ in steps), max(sequences for _, _, sequences in steps)
    sizes = MemorySizes(streams * -(-CONTEXT // PAGE_TOKENS), max(CONTEXT, most), most, streams)
    memory = StepMemory(model.program, there.matrices, there.vectors, formats[1], sizes, device)
    forward = device.compile(model.program, memory)
    device.wait()
    made, of_a_row = time.perf_counter() - before, 0.0
    for name, rows, sequences in steps:
        row: ROW = {"what": f"{what}, {name}", "weights_made_s": made}
        if rows // sequences > 1 and of_a_row * rows > LONGEST_S:
            yield row | {"not_run": f"it would take about {of_a_row * rows:.0f} s"}
            continue
        step = write_step(memory, rows, sequences, max(CONTEXT, rows // sequences))
        asked, results = np.zeros(sequences, SAMPLE_INPUT), np.zeros(sequences, SAMPLE_RESULT)
        asked["num_top"] = -1
        seconds = timed(lambda a=asked, t=results, s=step: forward.sampled(a, np.empty(0, np.uint8), t, s))
        of_a_row = seconds / rows
        row |= {"seconds": seconds, "rows_per_s": rows / seconds}
        yield row | ({"bytes_per_s": num_bytes / seconds} if rows == sequences else {})
