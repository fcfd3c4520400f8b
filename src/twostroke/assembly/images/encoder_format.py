"""The formats in which an encoder of images computes. They follow from the format of the language model's weights."""

from __future__ import annotations

from dataclasses import replace

from msgspec import Struct

from twostroke.assembly.calibrated_keys import with_rotation
from twostroke.ops.passes.lost_parts import with_lost_parts
from twostroke.ops.passes.row_cuts import with_row_cuts
from twostroke.ops.products.linear_add import fuse_linear_add
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice
from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.types.spec.formats import F32, KVKind

WIDE = {"f32": KVKind.F32, "bf16": KVKind.BF16}
"""The kind of K and V for each float format of an encoder's weights. With all other formats K and V are int8."""
USUAL = "int8"
TWO_CODES = "int16"
"""The name of the format in which each weight is stored as two int8 codes: the rounded weight, and its rounding error,
rounded too."""
AFTER_ATTENTION = "o"
"""The role of the attention output matrices, which stay float32 when the other matrices have the format TWO_CODES. They
are the smallest matrices, and rounding their inputs would be the largest part of the error that remains (ADR 70)."""
AS_THE_MODEL = "usual"
"""The name of the choice by which an encoder's format follows from the format of the language model."""


class EncoderFormat(Struct, frozen=True):
    """The formats in which an encoder of images computes. weights: the name of the format of its matrices. kv: the kind
    of its K and V. two_codes: whether each rounded weight has a second int8 code for its rounding error.

    An encode is limited by arithmetic, and CPUs multiply bytes four times as fast as floats. So K and V are bytes
    wherever weights are rounded. Files whose language model is quantized have their encoder in 16 bits; it is rounded
    to int8, as other checkpoints of 16 bits are. The rounding of weights is most of an encode's error. With second
    codes, an encode takes 1.5 times as long.
    """

    weights: str
    kv: KVKind
    two_codes: bool = False

    @classmethod
    def next_to(cls, weights: str, asked: str = AS_THE_MODEL) -> EncoderFormat:
        """Returns the format of an encoder next to a language model. weights: the name of the format of the language
        model's weights. asked: one of ENCODER_WEIGHTS, the values of --encoder-weights."""
        name = weights if asked == AS_THE_MODEL else asked
        rounded = USUAL if name in (STORED, TWO_CODES) else name
        return cls(rounded, WIDE.get(name, KVKind.INT8), name == TWO_CODES)

    @property
    def name(self) -> str:
        """The name of the format for people, such as `int16`."""
        return TWO_CODES if self.two_codes else self.weights

    @property
    def choice(self) -> FormatChoice:
        """The rule that gives each matrix of the encoder its format."""
        chosen = format_choice(self.weights)
        return (lambda weight: F32 if weight.role == AFTER_ATTENTION else chosen(weight)) if self.two_codes else chosen

    def model(self, model: Model) -> Model:
        """Returns the encoder with the changes that this format needs. Where K and V are int8, they are rotated before
        they are rounded. With `two_codes`, a product with a matrix's rounding errors is added to each product with the
        rounded matrix."""
        made = with_rotation(model, self.kv)
        if self.two_codes:
            program = fuse(made.plain, (fuse_linear_add,))
            made = replace(made, program=with_lost_parts(program, self.choice))
        return model if made is model else replace(made, program=with_row_cuts(made.program))
