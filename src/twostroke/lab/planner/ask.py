"""What the user wants of a model: formats, lengths, streams, objectives, a price."""

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
    """A request is `prompt_tokens` read and `output_tokens` written; `concurrency` of them run all the time.

    ttft_s, itl_s: objectives (types/objectives.py), None where there are none. price_per_hour: the price of the whole
    machine, in any currency. acceptance: the share of guessed tokens that is right; 0 where nothing is guessed.
    adapters: the number of places for adapters, each of adapter_rank; every request uses one. key_factors: the digest
    of the key factors that are stored next to the model and are used with kv_format; empty without any.
    encoder_bytes: the memory of what encodes images.
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

    def adapters_of(self, streams: int) -> int:
        """The expected number of different adapters in a step of `streams` streams. All adapters are equally likely."""
        count = self.adapters
        return max(1, round(count * (1 - (1 - 1 / count) ** streams))) if count and streams else 0

    @property
    def one_adapter(self) -> int:
        """What one sequence has: a number, -1 for none."""
        return 0 if self.adapters else -1

    @property
    def context_tokens(self) -> int:
        """Tokens of prompt and answer together."""
        return self.prompt_tokens + self.output_tokens

    @property
    def arithmetic(self) -> WeightKind:
        """The kind of products that most of the work is."""
        return WeightKind.INT8 if self.weights == STORED else weight_format(self.weights).kind.arithmetic

    @property
    def kv_kind(self) -> KVKind:
        """The kind of the KV cache."""
        return KVKind[self.kv_format.upper()]

    @property
    def kv_words(self) -> str:
        """The format of K and V for people: whether keys are calibrated too."""
        return f"{self.kv_format}, calibrated keys" if self.key_factors else self.kv_format

    def format_for(self, weight: Weight) -> WeightFormat:
        """A `FormatChoice`."""
        return format_choice(self.weights)(weight)


def usual_weights(spec: Model) -> str:
    """What the engine takes where nothing is asked for."""
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
    """Fill in what was not given, as the engine would. Nothing is promised, and nothing has a price.

    Raises ConfigError naming the option that cannot be.
    """
    chosen = weights or usual_weights(spec)
    kept = kv_format or usual_kv_format(chosen, spec.has_latents, spec.widest_head)
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
