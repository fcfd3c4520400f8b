"""The formats in which an encoder of images computes. They follow from the format of the language model's weights."""

from __future__ import annotations

from dataclasses import replace

from msgspec import Struct

from twostroke.assembly.calibrated_keys import with_rotation
from twostroke.ops.passes.row_cuts import with_row_cuts
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice
from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.types.spec.formats import KVKind

WIDE = {"f32": KVKind.F32, "bf16": KVKind.BF16}
"""The kinds of K and V next to weights that are not rounded to whole numbers."""
USUAL = "int8"


class EncoderFormat(Struct, frozen=True):
    """weights: the name of the format of an encoder's matrices. kv: the kind of its K and V.

    An encode is limited by arithmetic, and CPUs multiply bytes four times as fast as floats. So K and V are bytes
    wherever weights are rounded. Files whose language model is quantized have their encoder in 16 bits; it is rounded
    to int8, as other checkpoints of 16 bits are.
    """

    weights: str
    kv: KVKind

    @classmethod
    def next_to(cls, weights: str) -> EncoderFormat:
        """Returns the format of an encoder. weights: the name of the format of the language model's weights."""
        return cls(USUAL if weights == STORED else weights, WIDE.get(weights, KVKind.INT8))

    @property
    def choice(self) -> FormatChoice:
        """The format of each matrix."""
        return format_choice(self.weights)

    def model(self, model: Model) -> Model:
        """Returns the encoder as it computes: where K and V are whole numbers, they are rotated before."""
        made = with_rotation(model, self.kv)
        return model if made is model else replace(made, program=with_row_cuts(made.program))
