"""DeepSeek-V4 (DeepSeek-AI 2026). Attention sees the last positions one by one, and earlier positions as compressed
entries. The residual consists of four streams. The token or the router's scores choose the experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.compressed import CompressedHeads, EntryIndex, attend_compressed
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Router
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.streams import MixedStreams
from twostroke.models.common.fields.fields import read_facts, refuse_setting, silu_only, with_silent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.attention.entries import MOST_NUMBERS
from twostroke.ops.products.embed import embed
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.linear import linear
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.products.route_by_token import route_by_token
from twostroke.ops.program.values import Tensor
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gate import gate
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.stream_shares import MOST_STREAMS
from twostroke.types.spec.rope import MAX_POSITIONS, RopeSpec, rope_from_config

SLIDING, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
BY_TOKEN, BY_SCORE = "hash_moe", "moe"
RATIOS = {0: SLIDING, 4: SPARSE, 128: HEAVY}
RATES = {SPARSE: ("compress_rate_csa", 4), HEAVY: ("compress_rate_hca", 128)}
SCORES = {"sqrtsoftplus": Scores.SQRT_SOFTPLUS, "sigmoid": Scores.SIGMOID, "softmax": Scores.SOFTMAX}
SILENT = {**defaults("deepseek_v4"), "num_hash_layers": 3}
LIMIT_OF_RATE = 1 << 16
SHARE = "partial_rotary_factor"
BEHIND_SUM = 1e-20


@dataclass(frozen=True, slots=True)
class ClampedExperts:
    """The feed-forward block: experts chosen by score, or by the token where `by_token`, and a shared expert."""

    shape: BankShape
    rule: RouteRule
    limit: float
    vocab_size: int

    def __call__(self, t: Tracer, h: Value, *, by_token: bool) -> Value:
        """Returns the block's output for the normed rows h. by_token: whether the token's id chooses the experts, and
        not the scores."""
        banks = EachExpert("ffn.experts", "w1", "w3", "w2")
        block = Mixture(self.shape, self._router(by_token), banks, ExpertRule(Activation.SILU, self.limit))
        width, inner = self.shape.hidden_size, self.shape.inner_size
        names = {f"ffn.shared_experts.{name}": inner for name in ("w1", "w3")}
        both = gate(linear(h, t.matrix("gate_up", names, width)), Activation.SILU, self.limit)
        return add(block.chosen(t, h), linear(both, t.matrix("down", {"ffn.shared_experts.w2": width}, inner)))

    def _router(self, by_token: bool) -> Router:
        if not by_token:
            return LinearRouter("ffn.gate", self.shape.experts, self.rule, choice_bias="ffn.gate.bias")

        def named(t: Tracer, h: Value) -> Value:
            logits = linear(h, t.matrix("router", {"ffn.gate": self.shape.experts}, h.width))
            shape = (self.vocab_size, self.rule.chosen)
            table = t.vector_of((Tensor(t.name("ffn.gate.tid2eid"), shape),), shape[0] * shape[1])
            return route_by_token(logits, t.token_ids, table, self.rule)

        return named


@architecture("DeepseekV4ForCausalLM", model_type="deepseek_v4")
def deepseek_v4(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DeepSeek-V4. layer_types (or compress_ratios) defines the attention of each layer, mlp_layer_types (or
    num_hash_layers) how its experts are chosen."""
    silu_only(fields)
    for name in ("attention_bias", "mlp_bias", "tie_word_embeddings"):
        refuse_setting(fields, name, "No published model of this family sets it.")
    fields = with_silent(fields, SILENT)
    if not fields.boolean("norm_topk_prob", True):
        raise fields.wrong("norm_topk_prob", "Weights of experts are divided by their sum in this family.")
    for name in ("num_key_value_heads", "n_shared_experts"):
        if fields.integer(name, 1, 1 << 20) != 1:
            raise fields.wrong(name, "It is 1 in this family.")
    facts = read_facts(fields, positions=1 << 20, ignored=("mtp.",))
    norm, kinds = Norm(fields.number("rms_norm_eps", 1e-12, 0.1)), _layer_types(fields, facts.num_layers)
    heads, block = _heads(fields, facts, norm, kinds), _experts(fields, facts)
    by_token = _by_token(fields, facts.num_layers)
    streams = MixedStreams(
        fields.integer("hc_mult", 2, MOST_STREAMS),
        facts.hidden_size,
        fields.integer("hc_sinkhorn_iters", 1, 1000),
        fields.number("hc_eps", 0.0, 0.1),
        norm.eps,
    )

    def text(t: Tracer) -> Value:
        embedded = embed(t.matrix("embedding", {"embed": facts.vocab_size}, facts.hidden_size), t.token_ids, t)
        x = streams.begin(t, embedded)
        for index, kind in enumerate(kinds):
            with t.layer(f"layers.{index}."):
                h, shares = streams.read(t, "hc_attn", x)
                made = attend_compressed(t, heads[kind], norm(t, "attn_norm", h, in_place=True))
                x = streams.write(x, shares, made)
                h, shares = streams.read(t, "hc_ffn", x)
                made = block(t, norm(t, "ffn_norm", h, in_place=True), by_token=by_token[index])
                x = streams.write(x, shares, made)
        rows = gather_rows(x.flat(), t.logit_rows).heads(streams.count)
        last = norm(t, "norm", streams.end(t, "hc_head", rows), in_place=True)
        return linear(last, t.matrix("head", {"head": facts.vocab_size}, facts.hidden_size))

    return replace(facts, stored_prefixes=_saved_names(facts.num_layers)), text


def _saved_names(layers: int) -> tuple[tuple[str, str], ...]:
    """Returns the names of tensors in models that transformers saves, each with the published name."""
    own = tuple((f"model.layers.{index}.attn.norm.", f"layers.{index}.attn.kv_norm.") for index in range(layers))
    whole = (("model.embed_tokens.", "embed."), ("model.hc_head.hc_", "hc_head_"), ("model.norm.", "norm."))
    return (*own, ("model.layers.", "layers."), *whole)


def _layer_types(fields: Fields, layers: int) -> tuple[str, ...]:
    """Returns the type of each layer, from layer_types, from compress_ratios, or from the default of transformers."""
    name, words = "layer_types", list(fields.texts("layer_types"))
    if not words and fields.has("compress_ratios"):
        name = "compress_ratios"
        words = [RATIOS.get(ratio, "") for ratio in fields.integers(name)][:layers]
    if not words:
        words = [SPARSE if index > 1 and index % 2 else HEAVY for index in range(layers)]
    if len(words) != layers or any(word not in (SLIDING, SPARSE, HEAVY) for word in words):
        raise fields.wrong(name, f"It must say {SLIDING}, {SPARSE} or {HEAVY} (0, 4 or 128) {layers} times.")
    return tuple(words)


def _by_token(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Returns for each layer whether the token alone decides which experts are used."""
    words = fields.texts("mlp_layer_types")
    if not words:
        first = fields.integer("num_hash_layers", 0, 4096)
        return tuple(index < first for index in range(layers))
    if len(words) != layers or any(word not in (BY_TOKEN, BY_SCORE) for word in words):
        raise fields.wrong("mlp_layer_types", f"It must say {BY_TOKEN} or {BY_SCORE} {layers} times.")
    return tuple(word == BY_TOKEN for word in words)


def _heads(fields: Fields, facts: CommonFacts, norm: Norm, kinds: tuple[str, ...]) -> Mapping[str, CompressedHeads]:
    """Returns the attention for each kind of layer that the model has."""
    num_heads, dim = fields.integer("num_attention_heads", 1, 512), fields.integer("head_dim", 4, MOST_NUMBERS)
    groups = fields.integer("o_groups", 1, 512)
    if num_heads % groups or dim % 2:
        raise fields.wrong("o_groups", f"It must divide the {num_heads} heads, which have an even number of elements.")
    share = fields.number(SHARE, 1e-3, 1.0, default=64 / 512)
    turned = fields.integer("qk_rope_head_dim", 2, dim, default=int(dim * share))
    if fields.value(SHARE) is not None and int(dim * share) != turned:
        raise fields.wrong(SHARE, f"qk_rope_head_dim says that {turned} of {dim} elements turn.")
    plain = CompressedHeads(
        hidden_size=facts.hidden_size,
        num_heads=num_heads,
        dim=dim,
        query_rank=fields.integer("q_lora_rank", 1, 1 << 16),
        groups=groups,
        group_rank=fields.integer("o_lora_rank", 1, 1 << 16),
        window=fields.integer("sliding_window", 1, MAX_POSITIONS),
        turn=_rope(fields, "main", "rope_theta", turned, facts.max_positions),
        norm=norm,
    )
    index = EntryIndex(
        fields.integer("index_n_heads", 1, 512),
        fields.integer("index_head_dim", turned, MOST_NUMBERS),
        fields.integer("index_topk", 1, 1 << 16),
    )
    if index.dim % 2:
        raise fields.wrong("index_head_dim", "Entries have an even number of elements.")
    turn = _rope(fields, "compress", "compress_rope_theta", turned, facts.max_positions)
    rates = fields.group("compress_rates") or Fields({}, fields.place)
    found = {SLIDING: plain}
    for kind, (older, usual) in RATES.items():
        rate = rates.integer(kind, 2, LIMIT_OF_RATE, default=fields.integer(older, 2, LIMIT_OF_RATE, default=usual))
        found[kind] = replace(plain, turn=turn, rate=rate, index=index if kind == SPARSE else None)
    return {kind: found[kind] for kind in dict.fromkeys(kinds)}


def _rope(fields: Fields, label: str, theta: str, turned: int, positions: int) -> RopeSpec:
    """Returns the rotations of a kind of layer. The config has a group of fields for each kind, or only one group,
    which is for compressed layers alone.

    Yarn's factor on cosines is 1 where the config does not have the field: the published code has no such factor.
    """
    groups = fields.group("rope_parameters") or fields.group("rope_scaling") or Fields({}, fields.place)
    own = groups.group(label)
    values = dict(own.values if own else {} if label == "main" or groups.group("main") else groups.values)
    dim = fields.integer("head_dim", 1, MOST_NUMBERS)
    share = Fields(values, groups.place).number(SHARE, 1e-3, 1.0, default=turned / dim)
    if int(dim * share) != turned:
        raise Fields(values, groups.place).wrong(SHARE, f"qk_rope_head_dim says that {turned} of {dim} elements turn.")
    values.pop(SHARE, None)
    if values.get("rope_type", values.get("type")) == "yarn":
        values.setdefault("attention_factor", 1.0)
    base = fields.number(theta, 1.0 + 1e-6, 1e15)
    if own is None:
        values["rope_theta"] = base
    kept = {name: fields.values[name] for name in ("original_max_position_embeddings",) if fields.has(name)}
    return rope_from_config(Fields({**kept, "rope_parameters": values}, fields.place), turned, positions, theta=base)


def _experts(fields: Fields, facts: CommonFacts) -> ClampedExperts:
    count = fields.integer("n_routed_experts", 1, MOST_EXPERTS)
    word = fields.text("scoring_func", "sqrtsoftplus")
    if word not in SCORES:
        raise fields.wrong("scoring_func", f"It must be {', '.join(SCORES)}.")
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count),
        True,
        SCORES[word],
        added=BEHIND_SUM,
        factor=fields.number("routed_scaling_factor", 1e-6, 1e6),
    )
    shape = BankShape(count, facts.hidden_size, fields.integer("moe_intermediate_size", 1, 1 << 20))
    return ClampedExperts(shape, rule, fields.number("swiglu_limit", 1e-3, 1e6), facts.vocab_size)
