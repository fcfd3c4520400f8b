"""The image encoder of a model that also sees images, and how its rows come into a prompt.

A file of models/vision reads config.json: `read(fields, width)` returns (Sight, which describes the places of image
embeddings in the prompt; the encoder's facts; its program). width: the number of elements of a row of the text model.
The program makes image rows (embeddings), and the further rows that `Sight.added` asks for. ENCODERS has the file of
each model_type. Only the file that a config needs is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twostroke.cost.encode_cost import EncodeCost, PartCosts
from twostroke.cost.shape import StepCost
from twostroke.models.common.registry import CommonFacts
from twostroke.models.common.sight import Sight, TextTurns
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.passes.row_cuts import with_row_cuts
from twostroke.ops.program.check import check
from twostroke.ops.program.folded import fold_of
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import OpPart
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.types.first_use.lazy_module import LazyModule
from twostroke.types.pooling import Task
from twostroke.types.spec.fields import Fields

EncoderText = Callable[[Tracer], tuple[Value, ...]]
"""Traces an encoder. Returns its image rows (embeddings), then any further results: the rows that are added after
layers of the language model, or the rows before neighbouring patches are merged in the middle of the encoder."""
PIXEL_S, PLACE_S = 3e-9, 1.4e-9
"""Seconds that the host needs. PIXEL_S: for one number of a patch. PLACE_S: for each stored position embedding that is
interpolated into one number of a patch's position embedding. NumPy took 2.0 to 4.6 ns and 1.3 to 1.4 ns for them, on
one core of a Xeon of 2.1 GHz."""


def _home(name: str) -> LazyModule:
    return LazyModule(f"twostroke.models.vision.{name}")


_IDEFICS3, _QWEN2_VL, _QWEN3_VL, _PIXTRAL = map(_home, ("idefics3", "qwen2_vl", "qwen3_vl", "pixtral"))
_GEMMA3, _GEMMA4, _PADDLE, _GLM4V = map(_home, ("gemma3", "gemma4", "paddleocr_vl", "glm4v"))
_INTERNVL, _LFM2_VL, _LLAVA, _UNIFIED = map(_home, ("internvl", "lfm2_vl", "llava", "gemma4_unified"))
_GLM_OCR, _MINICPM_V, _LLAMA4, _KIMI = map(_home, ("glm_ocr", "minicpm_v", "llama4", "kimi"))
ENCODERS: Mapping[str, LazyModule] = {
    **{"idefics3": _IDEFICS3, "smolvlm": _IDEFICS3},
    **{"qwen2_vl": _QWEN2_VL, "qwen2_5_vl": _QWEN2_VL},
    **{"qwen3_vl": _QWEN3_VL, "qwen3_vl_moe": _QWEN3_VL, "qwen3_5": _QWEN3_VL, "qwen3_5_moe": _QWEN3_VL},
    **{"gemma3": _GEMMA3, "gemma4": _GEMMA4, "gemma4_unified": _UNIFIED, "paddleocr_vl": _PADDLE},
    **{"glm4v": _GLM4V, "glm46v": _GLM4V, "glm4v_moe": _GLM4V, "glm_ocr": _GLM_OCR},
    **{"internvl": _INTERNVL, "lfm2_vl": _LFM2_VL},
    **{"minicpmv4_6": _MINICPM_V, "minicpmv4_7": _MINICPM_V, "minicpm_ocr": _MINICPM_V},
    **{"mistral3": _PIXTRAL, "llava pixtral": _PIXTRAL, "lighton_ocr": _PIXTRAL},
    **{f"{name} {tower}_vision_model": _LLAVA for name in ("llava", "llava_next") for tower in ("clip", "siglip")},
    **{"llava_onevision siglip_vision_model": _LLAVA, "llama4": _LLAMA4},
    **{"kimi_k25": _KIMI, "kimi_vl": _KIMI},
}
"""Maps the outer model_type to the file in models/vision. Where a family has several towers, the key is the outer
model_type and that of vision_config."""


@dataclass(frozen=True, eq=False, slots=True)
class SightEncoder:
    """An encoder of images. model: its program. The body computes a row for each patch, the head a row for each image
    row of the prompt. pixels: the value that takes patches, one a row. places: the value that takes the position
    embeddings of the patches, where the host interpolates them to the size of a tile; None in other encoders."""

    sight: Sight
    model: Model
    pixels: Value
    places: Value | None


def read_encoder(config: Mapping[str, Any], text: Model) -> SightEncoder | None:
    """Reads the encoder of a config.json. Returns None where there is no encoder or its family is not in ENCODERS.
    text: the language model of the same checkpoint.

    Raises CorruptModel and UnsupportedModel, which name the field.
    """
    fields = Fields(config, "config.json")
    tower, word = fields.group("vision_config"), fields.text("model_type", "")
    if tower is None:
        return None
    home = ENCODERS.get(word) or ENCODERS.get(f"{word} {tower.text('model_type', '')}")
    if home is None:
        return None
    found: tuple[Sight, CommonFacts, EncoderText] = home.read(fields, text.hidden_size)
    sight, facts, made = found
    if not 0 <= sight.placeholder < text.vocab_size:
        raise fields.wrong("image_token_id", f"The language model has {text.vocab_size:,} tokens.")
    if sight.text_turns is not None:
        _require_pairs(fields, sight.text_turns, text)
    trace = Tracer()
    rows, *added = made(trace)
    plain = trace.program(rows, tuple(added))
    program = with_row_cuts(fuse(plain, PATTERNS))
    check(program)
    facts = replace(facts, dtype=text.dtype)
    model = Model.of(facts, f"encoder of {text.architecture}", plain, program, Task.EMBED)
    pixels, *places = program.given[: len(program.given) - (sight.fold is not None)]
    return SightEncoder(sight, replace(model, part="the encoder of images"), pixels, places[0] if places else None)


def encode_cost(encoder: SightEncoder, model: Model, cost_of: Callable[[Model], StepCost]) -> EncodeCost:
    """Returns the cost of encoding images with `encoder`. model: the encoder's program as it is run, divided at its
    `cuts` into pieces that are computed one after the other. cost_of: returns the cost of the steps of a program."""
    sight, merge, program = encoder.sight, encoder.sight.patching.merge**2, model.program
    layers = sum(call.PART is OpPart.ATTENTION for call in program.body)
    first, fold = program.cuts[0], fold_of(program)
    bodies = [program.body[:first], program.body[first:] or program.body, program.head]
    if fold is not None:
        after = next(cut for cut in program.cuts if cut > fold.at)
        bodies[1] = program.body[first : fold.at] + program.body[after:]
        bodies.append(program.body[fold.at : after])
    parts = (replace(model, program=replace(program, body=body, head=(), cuts=())) for body in bodies)
    costs, written_s = PartCosts(*map(cost_of, parts)), _written_s(encoder)
    if sight.fold is not None:
        whole = frozenset(range(layers)) - {sight.fold.layer}
        return EncodeCost(costs, merge, layers, sight.fold.group, whole, sight.fold, written_s)
    if sight.windows is None:
        return EncodeCost(costs, merge, layers, written_s=written_s)
    window, whole = sight.windows.side**2 * merge, frozenset(sight.windows.whole)
    return EncodeCost(costs, merge, layers, window, whole, written_s=written_s)


def _written_s(encoder: SightEncoder) -> float:
    """Returns the seconds that the host needs to fill the encoder's input buffers for one patch: its pixels and its
    position embedding."""
    taps = 0 if encoder.sight.learned is None else encoder.sight.learned.between.taps
    places = 0 if encoder.places is None else encoder.places.width * taps
    return PIXEL_S * encoder.pixels.width + PLACE_S * places


def _require_pairs(fields: Fields, turns: TextTurns, text: Model) -> None:
    """Raises CorruptModel where mrope_section, the division of rotary pairs among axes, does not fit the heads of the
    language model."""
    for rope in text.program.ropes:
        pairs = rope.spec.rotary_dim // 2
        if not turns.fits(pairs):
            raise fields.wrong("mrope_section", f"Heads of the language model have {pairs} rotary pairs.")
