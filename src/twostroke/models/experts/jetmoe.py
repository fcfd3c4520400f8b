"""JetMoe: attention and feed-forward blocks are both mixtures of experts (Shen et al. 2024). An expert of attention has
its own products for queries and outputs; all experts of a layer share K and V."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.attend import HeadCounts
from twostroke.models.common.blocks.banks import BankShape, Stacks
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, mixture
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.fields.fields import activation, usual_names, with_silent
from twostroke.models.common.fields.mixture import expert_count
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.chosen_linear import chosen_linear
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.linear import linear
from twostroke.ops.products.route import RouteRule
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.values import PagedKV, Rope
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.weigh_streams import weigh_streams
from twostroke.types.spec.rope import RopeSpec

SILENT = defaults("jetmoe")
LAYER_NORM = Norm(1e-6)
"""The norm before each block. rms_norm_eps is the epsilon of the norm after the last layer alone."""


@dataclass(frozen=True, slots=True)
class AttentionExperts:
    """An attention block whose query and output products are experts. heads: the query heads of one expert, and the K
    and V heads that all experts share. router: chooses experts for a row."""

    heads: HeadCounts
    shape: BankShape
    router: LinearRouter
    banks: Stacks
    turn: RopeSpec

    @property
    def choices(self) -> int:
        """The number of experts that a row uses."""
        return self.router.rule.chosen

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the block's output for the normed rows h, before it is added to the residual."""
        heads = self.heads
        routes = self.router(t, h)
        asked = chosen_linear(h, routes, self.banks.gate_up(t, self.shape))
        by_head = take_columns(asked, t.constant("heads_first", self._order(self.choices, heads.num_heads)))
        q = rope(by_head.heads(self.choices * heads.num_heads), Rope(self.turn), t.positions)
        both = linear(h, t.matrix("kv", {"self_attention.kv_proj": 2 * heads.kv}, heads.hidden_size))
        k, v = (part.heads(heads.num_kv_heads) for part in both.split(heads.kv, heads.kv))
        cache = t.cache(PagedKV(heads.num_kv_heads, heads.head_dim))
        kv_write(cache, rope(k, Rope(self.turn), t.positions), v, t.slots)
        seen = attention(q, cache, heads.head_dim**-0.5)
        by_choice = take_columns(seen, t.constant("choices_first", self._order(heads.num_heads, self.choices)))
        made = chosen_linear(by_choice.heads(self.choices), routes, self.banks.down(t, self.shape))
        return weigh_streams(made, routes.columns(0, self.choices)).flat()

    def _order(self, outer: int, inner: int) -> tuple[float, ...]:
        """Returns the order of columns that turns vectors (outer, inner) into vectors (inner, outer)."""
        dim = self.heads.head_dim
        return tuple(float((o * inner + i) * dim + d) for i in range(inner) for o in range(outer) for d in range(dim))


@architecture("JetMoeForCausalLM", model_type="jetmoe")
def jetmoe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads JetMoe: attention and feed-forward block both have experts."""
    parts = _parts(fields)
    fields, hidden = parts.fields, parts.facts.hidden_size
    count = expert_count(fields)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count), normalised=True)
    begin = "self_attention.experts"
    attend = AttentionExperts(
        parts.heads,
        BankShape(count, hidden, parts.heads.query, gated=False),
        LinearRouter(f"{begin}.router.layer", count, rule),
        _banks(begin),
        parts.rope(),
    )
    shape, router = BankShape(count, hidden, parts.feed.inner_size), LinearRouter("mlp.router.layer", count, rule)
    act = activation(fields, "activation_function", "silu")
    block = mixture(Mixture(shape, router, _banks("mlp"), ExpertRule(act)))

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        x = add(x, attend(t, LAYER_NORM(t, "input_layernorm", x)))
        return block(t, x, LAYER_NORM(t, "post_attention_layernorm", x))

    return parts.facts, decoder_program(parts.decoder, layer)


def _parts(fields: Fields) -> Parts:
    """Reads the model's attention and feed-forward settings. num_key_value_heads is the number of query heads of one
    attention expert, and also the number of K and V heads that all experts share."""
    fields = with_silent(fields, SILENT)
    chosen, heads = fields.integer("num_experts_per_tok", 1, 4096), fields.integer("num_key_value_heads", 1, 4096)
    if fields.integer("num_attention_heads", 1, 1 << 20, default=chosen * heads) != chosen * heads:
        raise fields.wrong("num_attention_heads", f"A row uses {chosen} experts of {heads} heads each.")
    values = usual_names(fields, {"kv_channels": "head_dim"}).values
    return read_parts(Fields({**values, "num_attention_heads": heads}, fields.place), SILENT)


def _banks(begin: str) -> Stacks:
    """Returns the names of a block's tensors of experts. All experts share one bias. The weights of a row's experts add
    up to 1, so this bias is added once to their sum."""
    return Stacks(f"{begin}.input_linear.weight", f"{begin}.output_linear.weight", common=f"{begin}.bias")
