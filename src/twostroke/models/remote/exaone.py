"""EXAONE 3, 3.5 and Deep: Llama under other names (LG AI Research 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import silu_only, usual_names
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture

SILENT = {"rms_norm_eps": 1e-5, "bos_token_id": 0, "eos_token_id": 2}
OWN_NAMES = {
    **{"num_layers": "num_hidden_layers", "layer_norm_epsilon": "rms_norm_eps"},
    "activation_function": "hidden_act",
}


@architecture("ExaoneForCausalLM", model_type="exaone")
def exaone(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads EXAONE 3, 3.5 and Deep. Norms are RMS norms although their field is called layer_norm_epsilon. Without
    intermediate_size the inner size of a block is four times the hidden size."""
    fields = usual_names(fields, OWN_NAMES)
    silu_only(fields)
    if fields.value("intermediate_size") is None:
        fields = fields.changed({"intermediate_size": 4 * fields.integer("hidden_size", 2, 1 << 17)})
    parts = read_parts(fields, SILENT)
    turn = parts.rope()
    own = "attn.attention"
    names = replace(parts.heads.names, q=f"{own}.q_proj", k=f"{own}.k_proj", v=f"{own}.v_proj", o=f"{own}.out_proj")
    parts = replace(
        parts,
        heads=replace(parts.heads, names=names),
        feed=replace(parts.feed, gate="mlp.c_fc_0", up="mlp.c_fc_1", down="mlp.c_proj"),
        decoder=replace(
            parts.decoder, embedding="transformer.wte", layers="transformer.h", last_norm="transformer.ln_f"
        ),
    )
    return pre_decoder(parts, turn, norms=("ln_1", "ln_2"))
