"""Names of tensors that many families share: stored name -> Hugging Face name."""

from __future__ import annotations

from collections.abc import Mapping

from twostroke.ops.operands import I32Array
from twostroke.weights.gguf.families.family import Config, Joined, Place, Shape
from twostroke.weights.gguf.row_orders import taken_in_turn

Names = Mapping[str, str | Place]

ATTENTION: Names = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
GATED: Names = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
DENSE: Names = {**ATTENTION, "ffn_norm": "post_attention_layernorm", **GATED}
EXPERTS: Names = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
MIXTRAL_EXPERTS: Names = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
}
SANDWICH: Names = {
    **ATTENTION,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    **GATED,
}
AFTER: Names = {
    **{stem: name for stem, name in ATTENTION.items() if stem != "attn_norm"},
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    **GATED,
}


def shared(prefix: str) -> Names:
    """Returns the names of a shared expert, a block that computes every row."""
    return {f"ffn_{part}_shexp": f"{prefix}.{part}_proj" for part in ("gate", "up", "down")}


def choice_bias(name: str) -> Names:
    """Returns the names of the bias that is added to the router's scores only while experts are chosen; some converters
    leave out the ending."""
    place = Place(name, shape=flat, whole=True)
    return {"exp_probs_b": place, "exp_probs_b.bias": place}


def flat(_: Config, shape: Shape) -> Shape:
    """Returns the shape of the same numbers as a vector."""
    count = 1
    for size in shape:
        count *= size
    return (count,)


def filters(_: Config, shape: Shape) -> Shape:
    """Returns the shape (channels, 1, taps) that PyTorch gives the filters of a convolution, for the stored shape
    (channels, taps)."""
    return (shape[0], 1, shape[1])


def two_by_two(_: Config, shapes: tuple[Shape, ...]) -> I32Array:
    """Returns the row order for joining two tensors: row 0 of the first, row 0 of the second, row 1 of the first, and
    so on."""
    return taken_in_turn(_count(shapes[0]), (1, 1))


def expert_by_expert(_: Config, shapes: tuple[Shape, ...]) -> I32Array:
    """Returns the row order that joins two stacks of experts' matrices: for each expert, all rows of its matrix in the
    first stack, then those in the second."""
    return taken_in_turn(shapes[0][0], (shapes[0][1], shapes[1][1]))


def _count(shape: Shape) -> int:
    count = 1
    for size in shape[:-1] if len(shape) == 3 else shape:
        count *= size
    return count


GATE_AND_UP = ("ffn_gate_exps.weight", "ffn_up_exps.weight")
SHARED_GATE_AND_UP = Joined("shared_mlp.input_linear.weight", ("ffn_gate_shexp.weight", "ffn_up_shexp.weight"))

GUESSES: Names = {
    "nextn.eh_proj": "eh_proj",
    "nextn.embed_tokens": "embed_tokens",
    "nextn.enorm": "enorm",
    "nextn.hnorm": "hnorm",
    "nextn.shared_head_head": "shared_head.head",
    "nextn.shared_head_norm": "shared_head.norm",
}
"""Names of the tensors of a layer that guesses a further token; no program reads them."""
