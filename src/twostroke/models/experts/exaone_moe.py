"""EXAONE MoE (K-EXAONE): windows with rotations, full layers without, experts by DeepSeek-V3's rule (LG AI 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder, sparse_layer
from twostroke.models.common.fields.mixture import listed_blocks, sigmoid_mixture
from twostroke.models.common.fields.read import Parts, pattern_windows, read_parts, window_of
from twostroke.models.common.prediction import MOST_LAYERS, NAMES_ALONE, MtpHead, predicts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.types.spec.rope import RopeSpec

FULL, SLIDING = KINDS = "full_attention", "sliding_attention"
CORRECTION = "mlp.e_score_correction_bias"


@architecture("ExaoneMoeForCausalLM", model_type="exaone_moe")
def exaone_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads K-EXAONE. Every fourth layer sees all earlier positions and has no rotation, unless layer_types overrides
    this."""
    parts, turn, window = _parts(fields)
    fields, facts = parts.fields, parts.facts
    named = fields.texts("layer_types")  # instead of a list, the pattern may be a word, "LLLG"
    pattern = 0 if named or not window else fields.integer("sliding_window_pattern", 1, 4096, default=4)
    windows = pattern_windows(fields, facts.num_layers, window, pattern)
    dense = fields.integer("first_k_dense_replace", 0, 4096, default=1)
    block = sigmoid_mixture(fields, facts.hidden_size, CORRECTION)
    blocks = listed_blocks(fields, block, facts.num_layers, dense)

    turns = [turn if each or not window else None for each in windows]
    parts = replace(parts, facts=replace(facts, ignored=(*facts.ignored, "mtp.")))
    return pre_decoder(parts, turns, windows=windows, blocks=blocks)


@predicts("ExaoneMoeForCausalLM")
def prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the layers that predict further tokens (MTP). Each has tensors of its own and a dense feed-forward block.
    The norms and the product around these layers are stored once for all. mtp_layer_types defines which of them have a
    window. Layers without a window are not rotated where the model has windows."""
    parts, turn, window = _parts(fields)
    fields = parts.fields
    count = fields.integer("num_nextn_predict_layers", 0, MOST_LAYERS, default=1)
    kinds = fields.texts("mtp_layer_types")
    if count and (len(kinds) != count or any(kind not in KINDS for kind in kinds)):
        raise fields.wrong("mtp_layer_types", f"It must say {' or '.join(KINDS)} {count} times.")

    def head(number: int) -> MtpHead:
        seen = window if kinds[number] == SLIDING else 0
        spec = turn if seen or not window else None

        def layer(t: Tracer, x: Value) -> Value:
            return sparse_layer(t, parts, None, x, window=seen, turn=spec)

        return MtpHead(parts.norm, layer, "mtp.", f"mtp.layers.{number}.", *NAMES_ALONE)

    return tuple(head(number) for number in range(count))


def _parts(fields: Fields) -> tuple[Parts, RopeSpec, int]:
    """Reads the model's attention and feed-forward settings, the rotation of the layers that are rotated, and the
    window."""
    parts = read_parts(fields, defaults("exaone_moe"))
    parts = replace(parts, heads=replace(parts.heads, head_norm=parts.norm))
    turn = parts.rope()
    return parts, turn, window_of(parts.fields, 4096)
