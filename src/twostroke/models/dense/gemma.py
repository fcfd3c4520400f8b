"""Gemma: Llama's decoder with a scaled embedding, a GELU gate and norms stored as w - 1 (Gemma team 2024)."""

from __future__ import annotations

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.families.gemma import read_gemma
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.rows.expressions import add

SILENT = {"num_key_value_heads": 16}


@architecture("GemmaForCausalLM", model_type="gemma")
def gemma(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Gemma. In old configs, hidden_act "gelu" means the approximation of gelu by tanh, as in transformers."""
    if fields.value("hidden_act") == "gelu":
        fields = fields.changed({"hidden_act": "gelu_pytorch_tanh"})
    model = read_gemma(fields, SILENT, "hidden_act")
    turn = model.rope()
    norm = model.decoder.norm

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        x = add(x, attend(t, model.heads, norm(t, "input_layernorm", x), turn=turn))
        return add(x, model.feed(t, norm(t, "post_attention_layernorm", x)))

    return model.facts, decoder_program(model.decoder, layer)
