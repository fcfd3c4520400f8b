"""Nemotron Super and Ultra: Llama whose layers were reduced one by one, by a search (Bercovich et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import Heads, attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.linear import linear
from twostroke.ops.rows.expressions import add

SILENT = {"intermediate_size": 1, "bos_token_id": 1, "eos_token_id": 2}
"""The values of fields that are absent or null in published configs. That of intermediate_size is never used, because
block_configs gives each layer its own."""
MULTIPLE = 256
WINDOWS = ("window_length", "num_sink_tokens", "use_prefill_window_in_sink_attention", "unshifted_sink", "sparsify")
LINEAR, NOTHING = "linear", "nothing"


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The two parts of a layer. Each part is a block (heads or a feed-forward block), LINEAR for one product in place
    of the block, or NOTHING."""

    attention: Heads | str
    feed: Feed | str


@architecture("DeciLMForCausalLM", model_type="nemotron-nas")
def nemotron_nas(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Nemotron Super and Ultra. block_configs has, for each layer, how many query heads share a KV head and how
    wide the feed-forward block is. Attention or feed-forward block may be replaced by a single product, or be left out
    together with its norm."""
    silu_only(fields)
    parts = read_parts(fields, SILENT)
    fields, width = parts.fields, parts.facts.hidden_size
    turn = parts.rope()
    heads = parts.biased_heads()
    feed = parts.biased_feed()
    layers = _layers(fields, replace(parts, heads=heads, feed=feed))

    def one(t: Tracer, name: str, h: Value) -> Value:
        return linear(h, t.matrix("o", {name: width}, width))

    def layer(t: Tracer, index: int, x: Value) -> Value:
        seen, made = layers[index].attention, layers[index].feed
        if seen != NOTHING:
            h = parts.norm(t, "input_layernorm", x)
            own = attend(t, seen, h, turn=turn) if isinstance(seen, Heads) else one(t, "self_attn.linear_attn", h)
            x = add(x, own)
        if made != NOTHING:
            h = parts.norm(t, "post_attention_layernorm", x)
            x = add(x, made(t, h) if isinstance(made, Feed) else one(t, "mlp.linear_mlp", h))
        return x

    return parts.facts, decoder_program(parts.decoder, layer)


def _layers(fields: Fields, parts: Parts) -> tuple[_Blocks, ...]:
    said = fields.value("block_configs")
    count = parts.facts.num_layers
    if not isinstance(said, list) or len(said) != count or not all(isinstance(each, dict) for each in said):
        raise fields.wrong("block_configs", f"It must hold one group for each of the {count} layers.")
    found = []
    for index, values in enumerate(said):
        layer = Fields(values, f"{fields.place}: block_configs {index}")
        attention, feed = (layer.group(name) or Fields({}, layer.place) for name in ("attention", "ffn"))
        for name in WINDOWS:
            refuse_setting(attention, name, "Windows of single layers are not implemented for this architecture.")
        refuse_setting(feed, "sparsify", "Sparse matrices are not implemented for this architecture.")
        found.append(_Blocks(_attention(attention, parts.heads), _feed(feed, parts.feed)))
    if not any(isinstance(blocks.attention, Heads) for blocks in found):
        raise fields.wrong("block_configs", "At least one layer must have an attention block.")
    return tuple(found)


def _instead(group: Fields) -> str:
    if group.boolean("replace_with_linear", False):
        return LINEAR
    return NOTHING if group.boolean("no_op", False) else ""


def _attention(group: Fields, heads: Heads) -> Heads | str:
    each = group.optional_integer("n_heads_in_group", 1, heads.num_heads)
    if each is None or _instead(group):
        return _instead(group) or NOTHING
    if heads.num_heads % each:
        raise group.wrong("n_heads_in_group", f"It must divide the {heads.num_heads} query heads.")
    return replace(heads, num_kv_heads=heads.num_heads // each)


def _feed(group: Fields, feed: Feed) -> Feed | str:
    wide = group.optional_integer("intermediate_size", 1, 1 << 20)
    if wide is not None and not _instead(group):
        return replace(feed, inner_size=wide)
    factor = group.optional_number("ffn_mult", 1e-6, 1e3)
    if factor is None or _instead(group):
        return _instead(group) or NOTHING
    inner = int(2 * factor * feed.hidden_size / 3)
    return replace(feed, inner_size=-(-inner // MULTIPLE) * MULTIPLE)
