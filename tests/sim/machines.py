"""Small models and machines in numbers, for simulations that take milliseconds."""

from __future__ import annotations

from typing import Any

from twostroke.cost.calibration import AttentionRates, Calibration, HostRates, LinearRates
from twostroke.cost.curve import Curve
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import SteadyCost
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.lab.sim.setup import ReplicaSetup
from twostroke.models.common.registry import read_model
from twostroke.models.common.work import work_of
from twostroke.ops.program.model import Model
from twostroke.types.spec.formats import KVKind, WeightKind
from twostroke.types.spec.hardware import find_hardware
from twostroke.types.spec.hardware_catalogue import CATALOGUE

CONFIG: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}


def small_model(window: int = 0) -> Model:
    """A model of four layers, with a sliding window where one is asked for."""
    return read_model({**CONFIG, "sliding_window": window or None})


def measured() -> Calibration:
    """An invented machine on which this model's weights are near the edge of the caches."""
    linear = LinearRates(
        cold=Curve.of([(1, 1.1e-9), (8, 1.7e-9), (64, 9e-9)]),
        warm=Curve.of([(1, 0.7e-9), (8, 1.3e-9), (64, 8e-9)]),
        features=Curve.of([(1, 1e-10), (64, 1e-10)]),
    )
    attention = AttentionRates(3e-11, 2e-11, 7e-12, 2e-8, 1e-8, Curve.of([(2, 2e-11), (64, 1e-11)]))
    return Calibration(
        fingerprint="",
        title="a test",
        threads=1,
        memory_bytes=1 << 30,
        others_share=0.0,
        read_bytes_per_s=1e10,
        f32_flops_per_s=1e11,
        int8_ops_per_s=2e11,
        warm_bytes=1.5e6,
        cold_bytes=4.5e6,
        linear={kind: linear for kind in WeightKind},
        attention={kind: attention for kind in KVKind},
        other=Curve.of([(1, 1e-10), (64, 2e-10)]),
        layer_s=3e-6,
        host=HostRates(1e-4, 3e-6, 1e-9),
    )


def cost_of(machine: str, window: int = 0) -> SteadyCost:
    """machine: "measured", or a name of the catalogue."""
    found = measured() if machine == "measured" else find_hardware(machine, CATALOGUE)
    return step_cost(work_of(small_model(window), "int8", KVKind.BF16), found)


def setup(
    num_pages: int = 400,
    step_tokens: int = 64,
    sequences: int = 8,
    machine: str = "measured",
    context: int = 2000,
    page_tokens: int = 16,
    watermark: int = 2,
) -> ReplicaSetup:
    """One replica of the small model."""
    limits = SchedulerLimits(step_tokens, sequences, watermark)
    kv_bytes = small_model().kv_bytes_per_token(KVKind.BF16)
    return ReplicaSetup(cost_of(machine), num_pages, limits, context, kv_bytes, page_tokens)
