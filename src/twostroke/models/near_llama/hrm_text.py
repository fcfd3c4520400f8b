"""HRM-Text: two stacks of Llama's layers that run several times in turn for each token (Sapient 2026).

The low stack reads the sum of both states, several times; then the high stack reads this sum once. Each run of a layer
keeps K and V of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.decoder import head
from twostroke.models.common.blocks.layers import pre_layer
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.blocks.same_rows import same_rows
from twostroke.models.common.fields.fields import refuse_setting
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.embed import embed
from twostroke.ops.program.values import Weight
from twostroke.ops.rows.expressions import add, scale
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import RopeSpec

SILENT = {"num_hidden_layers": 16, "num_attention_heads": 12, "head_dim": 128, "initializer_range": 0.02}
LOW, HIGH = "model.L_module.", "model.H_module."
MOST_RUNS = 64


def _joined(t: Tracer, shape: Heads) -> Weight:
    """Returns the matrix of gate, q, k and v, which is one tensor in checkpoints."""
    return t.matrix("qkv", {"attn.gqkv_proj": 4 * shape.query}, shape.hidden_size)


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack of layers, after which a norm without weights stands. prefix: the beginning of the names of its tensors.
    """

    parts: Parts
    layers: int
    turn: RopeSpec
    prefix: str

    def __call__(self, t: Tracer, x: Value) -> Value:
        """Returns the rows after one run of the layers, without the norm."""
        for index in range(self.layers):
            with t.layer(f"{self.prefix}layers.{index}."):
                x = pre_layer(t, self.parts, x, turn=self.turn)
        return x


@architecture("HrmTextForCausalLM", model_type="hrm_text")
def hrm_text(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads HRM-Text. The high-level stack of layers runs H_cycles times, each time after L_cycles runs of the
    low-level stack."""
    _refuse_prefix(fields)
    for name in ("attention_bias", "mlp_bias"):
        refuse_setting(fields, name, "No published model of this family has biases.")
    # transformers writes the total number of layers of all runs as num_hidden_layers. The number of layers of one stack
    # is in another field.
    per_stack = fields.optional_integer("num_layers_per_stack", 1, 4096)
    fields = fields.changed({"num_hidden_layers": per_stack}) if per_stack else fields
    fields = fields.changed({"num_key_value_heads": None})
    parts = read_parts(fields, SILENT, kind=NormKind.UNIT)
    fields, facts = parts.fields, parts.facts
    high = fields.integer("H_cycles", 1, MOST_RUNS, default=2)
    low = fields.integer("L_cycles", 1, MOST_RUNS, default=3)
    parts = replace(
        parts,
        heads=replace(parts.heads, gated=True, joined=_joined, names=AttentionNames(o="attn.o_proj")),
        feed=replace(parts.feed, gate_up="mlp.gate_up_proj"),
    )
    turn = parts.rope()
    stacks = [Stack(parts, facts.num_layers, turn, prefix) for prefix in (LOW, HIGH)]
    usual = 1.0 / fields.number("initializer_range", 1e-6, 1.0)
    factor = fields.optional_number("embedding_scale", 1e-6, 1e6) or usual

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {parts.decoder.embedding: facts.vocab_size}, facts.hidden_size)
        slow = scale(embed(table, t.token_ids, t), factor)
        fast = same_rows(t, slow, t.vector("model.z_L_init", facts.hidden_size, suffix=""))
        for run in range(high):
            slow = parts.norm(t, "", slow) if run else slow
            for _ in range(low):
                fast = parts.norm(t, "", stacks[0](t, add(fast, slow)))
            slow = stacks[1](t, add(slow, fast))
        return head(t, parts.decoder, slow)  # the decoder's norm comes after the last run

    return facts, text


def _refuse_prefix(fields: Fields) -> None:
    if fields.boolean("prefix_lm", True):
        raise UnsupportedModel(
            f"{fields.place}: prefix_lm is true.",
            why="Positions of a prompt would see later ones where token_type_ids asks for it. So no row could be "
            "computed by itself.",
            fix="Write prefix_lm false: prompts are then read causally, as transformers does without token_type_ids.",
        )
