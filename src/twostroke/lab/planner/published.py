"""Round figures that articles give for the size of KV caches and weights, next to the computed sizes."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.lab.planner.ceilings import streams_for_bytes
from twostroke.ops.program.model import Model


@dataclass(frozen=True, slots=True)
class RoundFigure:
    """A published figure of a KV cache. layers, kv_elements: the shape of the model that was published with it
    (kv_elements: elements of K in one layer and token). tokens: the tokens in the KV cache.

    published_bytes: the published figure in bytes, which may differ from formula_bytes().
    """

    said: str
    layers: int
    kv_elements: int
    tokens: int
    published_bytes: float

    def formula_bytes(self) -> int:
        """The bytes by the formula: 2 x layers x kv_heads x head_dim x 2 bytes x tokens."""
        return 2 * self.layers * self.kv_elements * 2 * self.tokens

    def words(self) -> str:
        """Returns a sentence with the published figure and the computed one."""
        exact = self.formula_bytes()
        ratio = streams_for_bytes(self.published_bytes, exact)
        about = f"about {ratio:.0f} sequences' worth" if ratio >= 10 else f"{ratio:.1f} times that"
        return f'"{self.said}": by the formula {_size(exact)}; the published figure is {about}'


ROUND_FIGURES = (
    RoundFigure("a 13B model needs roughly 1 MB of fp16 KV cache a token", 40, 5120, 1, 1e6),
    RoundFigure("a 13B model needs 4 GB for a context of 4K tokens", 40, 5120, 4096, 4e9),
    RoundFigure("a 7B model needs 2 GB of fp16 KV cache for 2,048 tokens", 32, 4096, 2048, 2e9),
    RoundFigure("a 70B model needs 60 to 80 GB of KV cache for 2,000 tokens", 80, 1024, 2000, 70e9),
)


def weight_words(spec: Model, weights: str, weight_bytes: int) -> str | None:
    """Returns a sentence about the size of stored weights, where it differs from parameters times bits. Returns None
    where the difference is under 1%, or for formats of a file."""
    bits = {"f32": 32, "bf16": 16, "int8": 8, "int4": 4}.get(weights)
    if bits is None:
        return None  # the file keeps its own formats
    said = spec.parameters() * bits / 8
    if abs(weight_bytes - said) < 0.01 * said:
        return None
    return (
        f'"{bits} bits a weight": {spec.parameters() / 1e9:.2f} B parameters x {bits / 8:g} bytes = {_size(said)}; '
        f"stored are {_size(weight_bytes)}, {weight_bytes / said - 1:+.0%}: scales, multipliers and padding"
    )


def figures_for(spec: Model, weights: str, weight_bytes: int) -> list[str]:
    """Returns sentences that compare published sizes of weights and KV cache, for a model of this shape, with the
    computed ones."""
    kinds = spec.paged_kinds
    shape = (spec.num_layers, kinds[0].kv_heads * kinds[0].head_dim if kinds else 0)
    found = [figure.words() for figure in ROUND_FIGURES if (figure.layers, figure.kv_elements) == shape]
    of_weights = weight_words(spec, weights, weight_bytes)
    return ([of_weights] if of_weights else []) + found


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.3g} MB"
