"""The weight formats on offer, by name, with the group sizes that were chosen by measurement.

int8 has groups of 256 columns, not of 128. The output error of a Gaussian matrix is 0.98% in place of 0.91%. But
kernels add their integer sums to the float32 sums only once in 256 columns, half as often.

int4 has a 4-bit multiplier for each 16 columns in addition to the group's scale, together 4.31 bits a weight. The error
is smaller than that of 4.5 bits with a bf16 scale for each 32 columns: 7.8% against 8.1%, and 11.1% against 13.9% with
outlier columns. q times multiplier is a whole int8 number, so all kernels make the same integers, whether they unpack
the weights or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from twostroke.types.spec.formats import (
    BF16,
    COLUMNS8,
    F32,
    ROTATED_COLUMNS,
    STORED_GROUP,
    WeightFormat,
    WeightKind,
)

if TYPE_CHECKING:  # the command line reads the names of this file, and no op
    from twostroke.ops.program.op import FormatChoice
    from twostroke.ops.program.values import Weight

INT8 = WeightFormat(WeightKind.INT8, group=256, rotated=ROTATED_COLUMNS)
"""int8 weights: 8.06 bits a weight."""

INT4 = WeightFormat(WeightKind.INT4, group=256, rotated=ROTATED_COLUMNS)
"""int4 weights: 4.31 bits a weight."""

INT6 = WeightFormat(WeightKind.SUPER6, group=STORED_GROUP, rotated=ROTATED_COLUMNS)
"""int6 weights: 6.56 bits a weight, that is codes of 6 bits, a multiplier of 8 bits for 16 columns, a scale for 256.
The kernels are those of Q6_K in files. Floats are rounded when the model is packed (quant/super6.py)."""

FORMATS: dict[str, WeightFormat] = {"f32": F32, "bf16": BF16, "int8": INT8, "int4": INT4, "int6": INT6}
"""The formats of weights, each under the name that `--weights` takes. No other list of these names is written by hand.
"""


class Int4Mixture(Struct, frozen=True):
    """int4 weights with another format for the matrices of some roles. roles: these roles. wide: their format."""

    roles: frozenset[str]
    wide: WeightFormat

    @property
    def bits_per_weight(self) -> float:
        """A number between the bits of both formats, by which the names of formats are put in order."""
        return (self.wide.bits_per_weight + INT4.bits_per_weight) / 2

    def format_of(self, weight: Weight) -> WeightFormat:
        """Returns the format of one matrix, which its role decides: `wide` for the roles of this mixture, else int4."""
        return self.wide if weight.role in self.roles else INT4


MIXTURES: dict[str, Int4Mixture] = {"int5": Int4Mixture(frozenset({"qkv", "down"}), INT6)}
"""The formats that mix int4 and int6, with about 5 bits a weight. The products that make Q, K and V, and those that end
a feed-forward block, lose more for each bit than the others (docs/quantization.md). Each matrix is computed by the
kernels of its own format."""

_ALL: dict[str, WeightFormat | Int4Mixture] = {**FORMATS, **MIXTURES}
WEIGHT_NAMES: tuple[str, ...] = tuple(sorted(_ALL, key=lambda name: -_ALL[name].bits_per_weight))
"""The names of all formats to which weights are rounded, those with more bits first."""

WHOLE_NAMES = tuple(name for name in WEIGHT_NAMES if name in MIXTURES or not FORMATS[name].kind.is_float)
"""The names of weight formats whose products are sums of whole numbers."""

INTEGER_WEIGHTS = ("int8", "int4")
"""The weight formats that all engines can make from a checkpoint. `bench compare` runs every engine with them, and the
other formats with Twostroke alone."""


def weight_format(name: str) -> WeightFormat:
    """Returns the format called `name`. For a mixture it is the format of most of its matrices. Raises ValueError with
    the list of names for another name."""
    found = INT4 if name in MIXTURES else FORMATS.get(name)
    if found is None:
        raise ValueError(f"no weight format is called {name!r}; there are {', '.join(WEIGHT_NAMES)}")
    return found


KEPT_BYTES = frozenset({"keys_up", "values_up"})
"""The roles of matrices that are int8 where fewer bits are asked for: small matrices of single heads, by which all
positions are multiplied (DeepSeek's kv_b)."""

STORED = "stored"
"""The name of the `--weights` choice that keeps the checkpoint's numbers unchanged: each matrix gets the format that
can hold its stored codes and scales."""

KEPT_WIDE = frozenset({"router", "positions", "classes", "pixels", "connector"})
"""The roles of matrices that are never rounded: small matrices on which much depends, and tables. router: chooses
experts. classes: makes scores. positions: a table of which each token reads one row, so that fewer bytes would save no
time. pixels, connector: the first and the last product of an image encoder."""


ADAPTERS = "adapter"
"""The `Weight.role` of the matrices of adapters (LoRA). The format of a matrix is chosen by its role."""


def adapter_format(name: str) -> WeightFormat:
    """Returns the format of adapters' matrices for a model in the format called `name`. It has as many bits as the
    model's, but at least 8; for `stored` it is bf16. Int8 has one scale for each rank of A and of B. So the error is
    small next to what the adapter adds, however little that is."""
    return {"f32": F32, **dict.fromkeys(WHOLE_NAMES, COLUMNS8)}.get(name, BF16)


def usual_weights(stored: bool, dtype: str, generates: bool) -> tuple[str, str]:
    """Returns the default weight format by name, and the reason for it. stored: whether the file holds codes and
    scales. dtype: the dtype of the file's matrices. generates: whether the model makes tokens; vectors and scores are
    compared by their last digits."""
    if stored:
        return STORED, "as the file has them"
    if dtype == "float32":
        return "f32", "the checkpoint is float32"
    if not generates:
        return "bf16", f"default for a {dtype} checkpoint that makes vectors or scores"
    return "int8", f"default for a {dtype} checkpoint on a CPU"


def usual_kv_format(weights: str, bytes_are_bad: bool) -> str:
    """Returns the default format of K and V. For f32 and bf16 weights it is the same format. For rounded weights it is
    int8, or bf16 where `bytes_are_bad`.

    int8 is the default because CPUs multiply bytes twice as fast as floats, and the loss is far below that of the
    weights (docs/quantization.md). bytes_are_bad: attention over int8 is slower (for latents, and at the level
    `generic`) or too inexact (`Model.hard_keys`).
    """
    if weights in ("f32", "bf16"):
        return weights
    return "bf16" if bytes_are_bad else "int8"


def kv_warning(kv_format: str) -> str | None:
    """Returns the warning for a user who asks for K and V in this format; None for formats whose loss is small."""
    if kv_format != "int4":
        return None
    return (
        "K and V in int4 change answers: on a published model of 0.1 billion parameters they alone make an error of"
        " 0.26 next to float32 (int8: 0.02), and another token is the likeliest in one position of five. Take int8"
        " unless memory is short (docs/quantization.md)."
    )


def format_choice(name: str) -> FormatChoice:
    """Returns a function that chooses the format of each matrix of a model. name: the format of the model's weights.
    Raises ValueError for an unknown name."""
    if name == STORED:
        return lambda weight: F32 if weight.role in KEPT_WIDE else weight.stored or BF16
    chosen = weight_format(name)
    narrow = INT8 if name in WHOLE_NAMES else chosen
    kept = {**dict.fromkeys(KEPT_WIDE, F32), **dict.fromkeys(KEPT_BYTES, narrow), ADAPTERS: adapter_format(name)}
    mixture = MIXTURES.get(name)
    if mixture is None:
        return lambda weight: kept.get(weight.role, chosen)
    return lambda weight: kept.get(weight.role) or mixture.format_of(weight)
