"""What a model that sees says next to its text program: the encoder of images, and how image rows come into a prompt.

A file of models/vision reads config.json: `read(fields, width)` gives a Sight, facts and a program. width: elements of
a row of the text model. A start imports the one file that a config names: ENCODERS says which file it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from twostroke.models.common.registry import CommonFacts, ProgramText
from twostroke.models.common.sight import Sight
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.program.check import check
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.model import Model
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.types.lazy_module import LazyModule
from twostroke.types.pooling import Task
from twostroke.types.spec.fields import Fields

_IDEFICS3 = LazyModule("twostroke.models.vision.idefics3")
ENCODERS: Mapping[str, LazyModule] = {"idefics3": _IDEFICS3, "smolvlm": _IDEFICS3}
"""Outer model_type -> the file in models/vision."""


@dataclass(frozen=True, eq=False, slots=True)
class SightEncoder:
    """An encoder of images. model: its program, with a row for each patch in the body and for each image row in the
    head. pixels: the value that takes patches, one a row."""

    sight: Sight
    model: Model
    pixels: Value


def read_encoder(config: Mapping[str, Any], text: Model) -> SightEncoder | None:
    """The encoder of a config.json; None where its family has none here. text: the language model inside.

    Raises CorruptModel and UnsupportedModel, which name the field.
    """
    fields = Fields(config, "config.json")
    home = ENCODERS.get(fields.text("model_type", ""))
    if home is None or fields.group("vision_config") is None:
        return None
    found: tuple[Sight, CommonFacts, ProgramText] = home.read(fields, text.hidden_size)
    sight, facts, made = found
    if not 0 <= sight.placeholder < text.vocab_size:
        raise fields.wrong("image_token_id", f"The language model has {text.vocab_size:,} tokens.")
    trace = Tracer()
    plain = trace.program(made(trace))
    program = fuse(plain, PATTERNS)
    check(program)
    facts = replace(facts, dtype=text.dtype)
    model = Model.of(facts, f"encoder of {text.architecture}", plain, program, Task.EMBED)
    return SightEncoder(sight, replace(model, part="the encoder of images"), program.given[0])
