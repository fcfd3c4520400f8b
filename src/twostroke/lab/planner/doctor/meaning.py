"""What the measurements of a machine mean for a user: the speed of a model of a billion parameters."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.cost.calibration import Calibration
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment
from twostroke.cost.step_work import WorkCounter
from twostroke.lab.planner.ceilings import decode_ceiling_tokens_per_s, prefill_floor_s
from twostroke.models.common.registry import read_model
from twostroke.models.common.work import work_of
from twostroke.ops.quant.formats import weight_format
from twostroke.types.spec.formats import KVKind

ONE_BILLION = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 8192,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}
"""The config of Llama-3.2-1B."""

PROMPT_TOKENS, STREAMS = 512, 8

MEANT = ("int8", "int4")
"""The weight formats for which `twostroke doctor` reports the speed of a model of the size of Llama-3.2-1B."""

TOLERANCE = 0.05
"""The share by which a measured kernel may be faster than the machine's measured limits. The machine's speed may change
between the two measurements."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The predicted speed of a model of a billion parameters in one weight format on the measured machine. The ceilings
    are the rates that bandwidth and arithmetic allow; the other rates are those that the measured kernels will reach.
    """

    weights: str
    weight_bytes: int
    decode_ceiling_tokens_per_s: float
    decode_tokens_per_s: float
    batch_decode_tokens_per_s: float
    prefill_ceiling_tokens_per_s: float
    prefill_tokens_per_s: float

    def words(self) -> str:
        """Returns two sentences for the user: the ceilings and the expected rates of decode and of prefill."""
        return (
            f"decode of a 1 B {self.weights} model cannot pass {_short(self.decode_ceiling_tokens_per_s)} tok/s here "
            f"({self.weight_bytes / 1e9:.2f} GB are read for each token); the kernels give "
            f"{_short(self.decode_tokens_per_s)}, and {_short(self.batch_decode_tokens_per_s)} to {STREAMS} streams "
            f"together. Its prefill cannot pass {_short(self.prefill_ceiling_tokens_per_s)} tok/s; the kernels give "
            f"{_short(self.prefill_tokens_per_s)} with a prompt of {PROMPT_TOKENS} tokens."
        )

    @property
    def contradictions(self) -> list[str]:
        """A sentence for each phase in which the kernels are faster than the limits of the same machine: one of the two
        was measured badly."""
        pairs = (
            ("decode", self.decode_tokens_per_s, self.decode_ceiling_tokens_per_s),
            ("prefill", self.prefill_tokens_per_s, self.prefill_ceiling_tokens_per_s),
        )
        return [
            f"{phase} of a 1 B {self.weights} model: the kernels give {_short(reached)} tok/s, and the limit is "
            f"{_short(ceiling)} tok/s"
            for phase, reached, ceiling in pairs
            if reached > ceiling * (1 + TOLERANCE)
        ]


def contradictions(calibration: Calibration) -> list[str]:
    """Returns a sentence for each pair of figures of one measurement that cannot both be true."""
    return [line for name in MEANT for line in meaning(calibration, name).contradictions]


def meaning(calibration: Calibration, weights: str) -> Meaning:
    """Returns the speed of a 1 B model on the measured machine. weights: "int8", "int4", "bf16" or "f32"; K and V are
    in bf16."""
    spec, chosen = read_model(ONE_BILLION), weight_format(weights)
    table = work_of(spec, weights, KVKind.BF16)
    counter, cost = WorkCounter(table), step_cost(table, calibration)
    prompt = [Segment.prefill(0, PROMPT_TOKENS, True)]
    one = [Segment.decode(PROMPT_TOKENS)]
    work = counter.step(one)
    moved = work.total.weight_bytes + work.total.kv_bytes
    return Meaning(
        weights,
        work.weights.weight_bytes + work.head.weight_bytes,
        decode_ceiling_tokens_per_s(calibration.read_bytes_per_s, moved),
        1 / cost.predict(one).seconds,
        STREAMS / cost.predict(one * STREAMS).seconds,
        PROMPT_TOKENS / prefill_floor_s(counter.step(prompt).total.flops, calibration.product_rate(chosen.kind)),
        PROMPT_TOKENS / cost.predict(prompt).seconds,
    )


def _short(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
