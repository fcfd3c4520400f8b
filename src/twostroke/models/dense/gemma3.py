"""Gemma 3: five layers with a window for one without, each kind with rotations of its own (Gemma team 2025).

Some checkpoints also see images: this file reads only their language model. EmbeddingGemma is this model with attention
in both directions, whose rows become one vector for each text (Vera et al. 2025).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.families.gemma import read_gemma, sandwich_layer
from twostroke.models.common.fields.fields import refuse_setting
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.fields.read import pattern_windows, window_of
from twostroke.models.common.forms import EMBEDDINGS
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.types.spec.rope import ropes_by_layer_type

SILENT = {**defaults("gemma3_text"), "sliding_window_pattern": 6}
"""The defaults of transformers. The text_config of a published checkpoint leaves most of these fields out."""

THETAS = {"sliding_attention": ("rope_local_base_freq", 10_000.0), "full_attention": ("rope_theta", 1_000_000.0)}


BOTH_WAYS = "use_bidirectional_attention"
"""The config field of models whose positions also see later ones. In these models, sliding_window counts the positions
of both directions together."""


@architecture("Gemma3ForCausalLM", model_type="gemma3_text")
def gemma3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Gemma 3. Every sixth layer sees all earlier positions, unless layer_types overrides this. Each head of q
    and k has a norm."""
    return _read(fields, lambda window: window, (0, 0))


@architecture("Gemma3TextModel", model_type="gemma3_text", form=EMBEDDINGS)
def gemma3_vectors(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads EmbeddingGemma. A layer with a window sees half of the window in each direction."""
    if not fields.boolean(BOTH_WAYS, False):
        return _read(fields, lambda window: window, (0, 0))
    half = window_of(fields, 4096) // 2
    rest = {name: value for name, value in fields.values.items() if name != BOTH_WAYS}
    return _read(fields.only(rest), lambda _: half + 1, (ALL_AHEAD, half))


def _read(fields: Fields, seen: Callable[[int], int], ahead: tuple[int, int]) -> tuple[CommonFacts, ProgramText]:
    """Reads a Gemma 3 model. seen: takes the window in the config and returns how many positions a row sees in a layer
    with a window, counting itself and earlier ones. ahead: how many later positions a layer sees, first without a
    window and then with one."""
    refuse_setting(fields, "attn_logit_softcapping", "transformers ignores it for Gemma 3: its meaning is not settled.")
    model = read_gemma(fields, SILENT, "hidden_activation")
    fields, layers, norm = model.fields, model.facts.num_layers, model.decoder.norm
    window = window_of(fields, 4096)
    pattern = fields.integer("sliding_window_pattern", 1, 4096)
    windows = pattern_windows(fields, layers, seen(window) if window else 0, pattern)
    ropes = ropes_by_layer_type(fields, model.heads.head_dim, model.facts.max_positions, THETAS, "full_attention")
    scalar = fields.number("query_pre_attn_scalar", 1e-6, 1e6)
    heads = replace(model.heads, scale=scalar**-0.5, head_norm=norm)
    cap = fields.optional_number("final_logit_softcapping", 1e-3, 1e6) or 0.0

    def layer(t: Tracer, index: int, x: Value) -> Value:
        sliding = windows[index] > 0
        turn = ropes["sliding_attention" if sliding else "full_attention"]
        own = replace(heads, ahead=ahead[sliding])
        return sandwich_layer(t, own, model.feed, norm, x, window=windows[index], turn=turn)

    return model.facts, decoder_program(replace(model.decoder, soft_cap=cap), layer)


@architecture("Gemma3ForConditionalGeneration", model_type="gemma3")
def gemma3_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    text = fields.group("text_config")
    if text is not None:
        refuse_setting(text, "final_logit_softcapping", "transformers ignores it where there are images.")
    return language_model(fields, "Gemma3ForCausalLM")
