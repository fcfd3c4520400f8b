"""GPT, the first one: norms of sums after each block, learned positions, no last norm (Radford et al. 2018)."""

from __future__ import annotations

from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import head_dim, read_facts, refuse_setting, usual_names
from twostroke.models.common.fields.learned_positions import learned_positions
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import PagedKV
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.errors import UnsupportedModel

PREFIX = "transformer."
OWN_NAMES = {
    **{"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"},
    "n_positions": "max_position_embeddings",
}
"""The fields of this family's config.json, each with the name that other families give it."""
FUNCTIONS = {
    **{"gelu": Activation.GELU_TANH, "relu": Activation.RELU},
    **{"silu": Activation.SILU, "swish": Activation.SILU},
}
"""The activation for each word of the field `afn`. The family's gelu is the approximation by tanh."""


@architecture("OpenAIGPTLMHeadModel", model_type="openai-gpt")
def openai_gpt(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the first GPT. The head is the embedding. The inner size of feed-forward blocks is four times the width."""
    fields = usual_names(fields, OWN_NAMES)
    if not fields.boolean("tie_word_embeddings", True):
        raise UnsupportedModel("config.json: tie_word_embeddings is false.", why="The family's head is its embedding.")
    refuse_setting(fields, "n_inner", "The inner size of this family is four times the width.")
    word = fields.text("afn", "gelu")
    if word not in FUNCTIONS:
        raise UnsupportedModel(
            f"config.json: afn {word[:40]!r} is not implemented.", why=f"Implemented: {', '.join(FUNCTIONS)}."
        )
    facts = read_facts(fields, positions=512, ignored=("lm_head.weight",), optional_prefix=PREFIX)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number("layer_norm_epsilon", 1e-12, 0.1, default=1e-5), NormKind.LAYER)
    dim = head_dim(fields, width, num_heads)
    places = learned_positions(f"{PREFIX}positions_embed", facts)

    def layer(t: Tracer, x: Value) -> Value:
        x = norm(t, "ln_1", add(x, _attend(t, num_heads, dim, x)), in_place=True)
        up = t.matrix("up", {"mlp.c_fc": 4 * width}, width, bias=True, transposed=True)
        down = t.matrix("down", {"mlp.c_proj": width}, 4 * width, bias=True, transposed=True)
        return norm(t, "ln_2", add(x, linear(activate(linear(x, up), FUNCTIONS[word]), down)), in_place=True)

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {f"{PREFIX}tokens_embed": facts.vocab_size}, width)
        x = places(t, embed(table, t.token_ids, t))
        for index in range(facts.num_layers):
            with t.layer(f"{PREFIX}h.{index}."):
                x = layer(t, x)
        return linear(gather_rows(x, t.logit_rows), table)

    return facts, text


def _attend(t: Tracer, heads: int, dim: int, x: Value) -> Value:
    width = heads * dim
    joined = linear(x, t.matrix("qkv", {"attn.c_attn": 3 * width}, width, bias=True, transposed=True))
    q, k, v = (part.heads(heads) for part in joined.split(width, width, width))
    cache = t.cache(PagedKV(heads, dim))
    kv_write(cache, k, v, t.slots)
    out = t.matrix("o", {"attn.c_proj": width}, width, bias=True, transposed=True)
    return linear(attention(q, cache, dim**-0.5).flat(), out)
