"""The weight formats on offer, by name, with the group sizes that the measurements chose.

int8 has groups of 256 and not of 128: the output error of a Gaussian
matrix is 0.98% in place of 0.91%, and matrix tiles wait half as often for a group to be folded into the float32 sums.
int4 has a 4-bit multiplier for each 16 columns next to the group's scale. These 4.31 bits a weight err less than 4.5
bits with a bf16 scale for each 32 columns did: 7.8% against 8.1%, and 11.1% against 13.9% with outlier columns. q times
multiplier is a whole int8 number, so that every kernel, unpacking or not, makes the same integers.
"""

from __future__ import annotations

from msgspec import Struct

from twostroke.ops.program.op import FormatChoice
from twostroke.ops.program.values import Weight
from twostroke.ops.rotation import ROTATED_COLUMNS
from twostroke.types.spec.formats import BF16, COLUMNS8, F32, STORED_GROUP, WeightFormat, WeightKind

INT8 = WeightFormat(WeightKind.INT8, group=256, rotated=ROTATED_COLUMNS)
"""8.06 bits a weight."""

INT4 = WeightFormat(WeightKind.INT4, group=256, rotated=ROTATED_COLUMNS)
"""4.31 bits a weight."""

INT6 = WeightFormat(WeightKind.SUPER6, group=STORED_GROUP, rotated=ROTATED_COLUMNS)
"""6.56 bits a weight: codes of 6 bits, a multiplier of 8 bits for 16 columns, a scale for 256. The kernels are those of
Q6_K in files. Floats are rounded when the model is packed (quant/super6.py)."""

FORMATS: dict[str, WeightFormat] = {"f32": F32, "bf16": BF16, "int8": INT8, "int4": INT4, "int6": INT6}


class Int4Mixture(Struct, frozen=True):
    """int4 in which the matrices of some roles have another format."""

    roles: frozenset[str]
    wide: WeightFormat

    def format_of(self, weight: Weight) -> WeightFormat:
        """The format of one matrix."""
        return self.wide if weight.role in self.roles else INT4


MIXTURES: dict[str, Int4Mixture] = {"int5": Int4Mixture(frozenset({"qkv", "down"}), INT6)}
"""Between int4 and int6: about 5 bits. The products that make Q, K and V, and those that end a feed forward, lose more
for each bit than the others (docs/quantization.md). A mixture has no arithmetic of its own."""

WEIGHT_NAMES: tuple[str, ...] = (*FORMATS, *MIXTURES)
WHOLE_NAMES: tuple[str, ...] = ("int8", "int6", "int4", *MIXTURES)
"""Names of weights whose products are sums of whole numbers."""


def weight_format(name: str) -> WeightFormat:
    """The format called `name`; of a mixture, the one that most of its matrices have. Raises ValueError for other
    names, with the list."""
    found = INT4 if name in MIXTURES else FORMATS.get(name)
    if found is None:
        raise ValueError(f"no weight format is called {name!r}; there are {', '.join(WEIGHT_NAMES)}")
    return found


KEPT_BYTES = frozenset({"keys_up", "values_up"})
"""Roles that are rounded to int8 where fewer bits are asked for: small matrices of single heads that all positions go
through (DeepSeek's kv_b)."""

STORED = "stored"
"""Each matrix in the format that keeps what the checkpoint holds."""

KEPT_WIDE = frozenset({"router", "positions", "classes", "pixels", "connector"})
"""Roles that are never rounded: few rows that decide which experts a token meets; a table of which each token reads one
row, so that fewer bytes would save no time; the few rows that make scores; the first and the last
product of an encoder of images."""


ADAPTERS = "adapter"
"""The role of adapters' matrices."""


def adapter_format(name: str) -> WeightFormat:
    """The format of adapters' matrices next to a model in the format called `name`: as many bits, 8 at the least.

    Int8 has one scale for each rank of A and of B, so that what it errs is a share of the adapter's own part.
    """
    return {"f32": F32, **dict.fromkeys(WHOLE_NAMES, COLUMNS8)}.get(name, BF16)


def usual_weights(stored: bool, dtype: str, generates: bool) -> tuple[str, str]:
    """The format where none is asked for, and why. stored: whether the file holds codes and scales. dtype: that of its
    matrices. generates: whether the model makes tokens; vectors and scores are compared by their last digits."""
    if stored:
        return STORED, "as the file has them"
    if dtype == "float32":
        return "f32", "the checkpoint is float32"
    if not generates:
        return "bf16", f"default for a {dtype} checkpoint that makes vectors or scores"
    return "int8", f"default for a {dtype} checkpoint on a CPU"


WIDE_HEAD = 256
"""From so many dimensions of a head on, K and V are in bf16 where nothing is asked for. int8 has one scale for a head
and position: on Gemma 3 270M (256) it adds 15% to the error of int8 weights, on SmolLM2 (64) nothing (ADR 56)."""


def usual_kv_format(weights: str, slow_bytes: bool, head_dim: int) -> str:
    """The format of K and V where none is asked for. weights: the name of the weights' format. slow_bytes: attention
    over int8 is slower there than over bf16: over latents, at the level `generic`. head_dim: of the widest head.

    int8 next to rounded weights: CPUs multiply bytes twice as fast as floats, and the loss is far below that of the
    weights (docs/quantization.md).
    """
    if weights in ("f32", "bf16"):
        return weights
    return "bf16" if slow_bytes or head_dim >= WIDE_HEAD else "int8"


def kv_warning(kv_format: str) -> str | None:
    """What to say where K and V are asked for in this format; None for those whose loss is small."""
    if kv_format != "int4":
        return None
    return (
        "K and V in int4 change answers: on a published model of 0.1 billion parameters they alone make an error of"
        " 0.26 next to float32 (int8: 0.02), and another token is the likeliest in one position of five. Take int8"
        " unless memory is short (docs/quantization.md)."
    )


def format_choice(name: str) -> FormatChoice:
    """The format of each matrix where the one called `name` is chosen for a model. Raises ValueError like the above."""
    if name == STORED:
        return lambda weight: F32 if weight.role in KEPT_WIDE else weight.stored or BF16
    chosen = weight_format(name)
    narrow = INT8 if name in WHOLE_NAMES else chosen
    kept = {**dict.fromkeys(KEPT_WIDE, F32), **dict.fromkeys(KEPT_BYTES, narrow), ADAPTERS: adapter_format(name)}
    mixture = MIXTURES.get(name)
    if mixture is None:
        return lambda weight: kept.get(weight.role, chosen)
    return lambda weight: kept.get(weight.role) or mixture.format_of(weight)
