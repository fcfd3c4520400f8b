"""What the user asks of a model: formats, lengths, streams, objectives, a price."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.ops.program.model import Model
from twostroke.ops.program.values import Weight
from twostroke.ops.quant.formats import STORED, format_choice, usual_kv_format, weight_format
from twostroke.ops.quant.formats import usual_weights as usual_format
from twostroke.types.errors import ConfigError
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import KVKind, WeightFormat, WeightKind

DEFAULT_CONTEXT = 2048
DEFAULT_OUTPUT_SHARE, DEFAULT_OUTPUT_TOKENS = 4, 512


@dataclass(frozen=True, slots=True)
class Ask:
    """What the user asks of a model. A request reads `prompt_tokens` and writes `output_tokens`; `concurrency` requests
    run all the time.

    ttft_s, itl_s: objectives (types/objectives.py), None where there are none. price_per_hour: the price of the whole
    machine, in any currency. acceptance: the share of guessed tokens that are right; 0 where nothing is guessed.
    adapters: the number of places for adapters, each of rank adapter_rank; every request uses one adapter. key_factors:
    the digest of key_factors.json, by whose factors K is divided before it is stored in kv_format; empty without this
    file. encoder_bytes: the memory of the image encoder in bytes. encoder_weights: the format of its weights; empty
    without an encoder.
    """

    weights: str
    kv_format: str
    prompt_tokens: int
    output_tokens: int
    concurrency: int = 1
    ttft_s: float | None = None
    itl_s: float | None = None
    price_per_hour: float | None = None
    acceptance: float = 0.0
    adapters: int = 0
    adapter_rank: int = 16
    key_factors: str = ""
    encoder_bytes: int = 0
    encoder_weights: str = ""

    def adapters_of(self, streams: int) -> int:
        """Returns the expected number of different adapters in a step of `streams` streams. All adapters are equally
        likely."""
        count = self.adapters
        return max(1, round(count * (1 - (1 - 1 / count) ** streams))) if count and streams else 0

    @property
    def one_adapter(self) -> int:
        """The number of the adapter that a single predicted sequence uses: 0, or -1 where the plan has no adapters."""
        return 0 if self.adapters else -1

    @property
    def context_tokens(self) -> int:
        """The tokens of prompt and answer together."""
        return self.prompt_tokens + self.output_tokens

    @property
    def arithmetic(self) -> WeightKind:
        """The number format in which most matrix products are computed."""
        return WeightKind.INT8 if self.weights == STORED else weight_format(self.weights).kind.arithmetic

    @property
    def kv_kind(self) -> KVKind:
        """The kind of the KV cache."""
        return KVKind[self.kv_format.upper()]

    @property
    def kv_words(self) -> str:
        """The format of K and V as text for people, with a note where K is divided by key_factors."""
        return f"{self.kv_format}, calibrated keys" if self.key_factors else self.kv_format

    def format_for(self, weight: Weight) -> WeightFormat:
        """Returns the format in which a weight is stored. This method is passed where a `FormatChoice` is wanted."""
        return format_choice(self.weights)(weight)


def usual_weights(spec: Model) -> str:
    """Returns the weight format that the engine takes where none is asked for."""
    stored = any(weight.stored for weight in spec.program.weights)
    return usual_format(stored, spec.dtype, spec.task is Task.GENERATE)[0]


def make_ask(
    spec: Model,
    weights: str | None = None,
    kv_format: str | None = None,
    context: int | None = None,
    output_tokens: int | None = None,
    concurrency: int = 1,
) -> Ask:
    """Returns what a user asks of a plan (`Ask`). Options that are None are filled in as the engine would. Objectives
    and price stay empty.

    Raises ConfigError that names the option with an impossible value.
    """
    chosen = weights or usual_weights(spec)
    kept = kv_format or usual_kv_format(chosen, spec.has_latents or bool(spec.hard_keys))
    total = context or min(spec.max_positions, DEFAULT_CONTEXT)
    if total > spec.longest_context:
        raise ConfigError(
            f"--context {total:,} is more than the model's {spec.longest_context:,} positions.",
            why="config.json: max_position_embeddings.",
            fix=f"Ask for at most {spec.longest_context:,}.",
        )
    if total < 2:
        raise ConfigError("--context 1 leaves no room for an answer.", fix="Ask for 2 tokens or more.")
    output = output_tokens or max(1, min(DEFAULT_OUTPUT_TOKENS, total // DEFAULT_OUTPUT_SHARE))
    if output >= total:
        raise ConfigError(
            f"--output {output:,} leaves no room for a prompt in --context {total:,}.",
            fix="Raise --context or lower --output.",
        )
    return Ask(chosen, kept, total - output, output, concurrency)
