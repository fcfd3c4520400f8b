"""The models whose ops are timed one by one, as layers of published shapes."""

from __future__ import annotations

from typing import Any

from tools.gpu.kernel_times import Table, fewer_layers
from tools.gpu.shapes import SHAPES, SMALL, stored

from twostroke.ops.program.op import FormatChoice
from twostroke.ops.quant.formats import format_choice
from twostroke.types.spec.formats import KVKind, WeightKind

LAYERS = 12
"""The number of layers of the 8B shape that are made. Twelve times the smallest matrix is more than a level-2 cache
holds."""
EXPERTS: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "vocab_size": 151936,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 40960,
    "hidden_act": "silu",
}
"""The shape of Qwen3-30B-A3B, with 4 of its 48 layers."""
PRODUCTS = ("linear qkv", "linear_add o", "linear_silu gate_up", "linear_add down", "head: linear head")
OF_EXPERTS = ("linear router", "route", "experts gate_up down")


def _eight(name: str, formats: FormatChoice, kv: KVKind, **more: Any) -> Table:
    return Table(f"8B {name}", fewer_layers(SHAPES["8B"], LAYERS), 32, formats, kv, **more)


FEWER: dict[str, Any] = {"rows": (1, 2, 16, 64, 2048), "contexts": (512,), "pool_tokens": 64 * 512, "ops": PRODUCTS}
TABLES = (
    _eight("int8, K and V int8", format_choice("int8"), KVKind.INT8),
    _eight("int4, K and V int8", format_choice("int4"), KVKind.INT8),
    _eight("bf16, K and V bf16", format_choice("bf16"), KVKind.BF16),
    _eight("Q4_K", stored(WeightKind.SUPER4_MIN), KVKind.INT8, **FEWER),
    _eight("Q6_K", stored(WeightKind.SUPER6), KVKind.INT8, **FEWER),
    _eight("Q8_0", stored(WeightKind.FLAT8), KVKind.INT8, **FEWER),
    Table("30B-A3B int8", EXPERTS, 48, format_choice("int8"), KVKind.INT8, **(FEWER | {"ops": OF_EXPERTS})),
)
_TINY: dict[str, Any] = {"rows": (1, 6), "contexts": (32, 64), "streams": 4, "pool_tokens": 64}
SMALL_TABLES = (
    Table("tiny int8", SMALL["tiny"], 2, format_choice("int8"), KVKind.INT8, **_TINY),
    Table(
        "tiny Q4_K",
        SMALL["tiny"] | {"hidden_size": 256, "intermediate_size": 256},
        2,
        stored(WeightKind.SUPER4_MIN),
        KVKind.INT8,
        **_TINY,
    ),
)
"""The tables for the emulator."""
