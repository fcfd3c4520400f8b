"""Model: the result of a model file for one config. It has a program, and the few facts that are not in the program."""

from __future__ import annotations

from dataclasses import dataclass, fields

from twostroke.cost.cache_needs import CacheNeeds, GroupBytes
from twostroke.ops.program.cache_groups import cache_groups, page_bytes
from twostroke.ops.program.op import FormatChoice
from twostroke.ops.program.program import Program
from twostroke.ops.program.stack import ExpertStack
from twostroke.ops.program.values import LatentKV, PagedKV, VectorForm
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import KVKind

F32_BYTES = 4
WIDE_HEAD = 256
"""The head size from which K and V are bf16 by default, because K in int8 would add too much to the error of int8
weights. int8 has one scale for a head and position. It adds 15% on Gemma 3 270M (256 dimensions), and nothing on
SmolLM2 (64; ADR 56)."""
KEYS = "qkv"
"""The `Weight.role` of the joint matrix that makes queries, keys and values."""


@dataclass(frozen=True, eq=False, slots=True)
class CommonFacts:
    """The facts that a model file reads from the config, apart from its program.

    max_positions: the longest sequence. eos_token_ids: the ids of the end tokens, perhaps none. dtype: the saved dtype
    that the checkpoint names, "float32", "bfloat16" or "float16". ignored: tensors of the checkpoint that may exist and
    are not read; an entry that ends with a dot is the beginning of names. optional_prefix: a beginning of the program's
    tensor names that some checkpoints leave out. stored_prefixes: pairs (beginning of tensor names in some checkpoints,
    beginning that the program has instead). stacks: stacked tensors of experts, in some checkpoints. zeros: endings of
    the names of tensors that are zero where a checkpoint lacks them. copies: pairs (beginning of the names of tensors
    that a checkpoint stores a second time, beginning that the program reads); both must have the same numbers.
    read_elsewhere: names of tensors that another program reads.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    max_positions: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    dtype: str
    ignored: tuple[str, ...] = ()
    optional_prefix: str = ""
    stored_prefixes: tuple[tuple[str, str], ...] = ()
    stacks: tuple[ExpertStack, ...] = ()
    zeros: tuple[str, ...] = ()
    copies: tuple[tuple[str, str], ...] = ()
    read_elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Model(CommonFacts):
    """A model as programs and facts. plain: the program as the model file traced it. program: the same program with
    calls fused.

    task: the meaning of a row of the result: logits of the next token, an embedding, or scores. part: the name of this
    part where several processes hold the model together; empty for a whole model. groups: the indices of those cache
    groups of pages, among the whole model's, that this part has; None for all.
    """

    architecture: str
    plain: Program
    program: Program
    task: Task = Task.GENERATE
    part: str = ""
    groups: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls, facts: CommonFacts, architecture: str, plain: Program, program: Program, task: Task = Task.GENERATE
    ) -> Model:
        """Makes a model of the facts and the other fields. plain: the program as the model file traced it. program: the
        same program with fused calls."""
        known = {field.name: getattr(facts, field.name) for field in fields(CommonFacts)}
        return cls(**known, architecture=architecture, plain=plain, program=program, task=task)

    def rope_bytes(self, positions: int) -> int:
        """Returns the bytes of the rotation tables for `positions` positions: cos and sin, float32."""
        return sum(positions * rope.spec.rotary_dim * F32_BYTES for rope in self.program.ropes)

    @property
    def longest_context(self) -> int:
        """The largest context, in positions, that a user may ask for. It is max_positions, or the reach of the model's
        rope scaling where that is more."""
        return max((self.max_positions, *(rope.spec.reach for rope in self.program.ropes)))

    def parameters(self) -> int:
        """The number of trained numbers. Tied embeddings are counted once, and adapters are not counted."""
        return self.plain.parameters

    def weight_bytes(self, format_for: FormatChoice) -> int:
        """Returns the bytes of all packed weights: matrices in their formats with padding and scales, vectors as
        float32."""
        program = self.program
        matrices = sum(
            weight.matrices * format_for(weight).total_bytes(weight.rows, weight.columns)
            + F32_BYTES * sum(part.length for part in weight.bias)
            for weight in program.weights
        )
        return matrices + F32_BYTES * sum(vector.length for vector in program.vectors)

    def kv_bytes_per_token(self, kv_kind: KVKind) -> int:
        """Returns the bytes of K and V of one position in all layers."""
        return sum(kind.token_bytes(kv_kind) for kind in self.program.paged())

    def kv_bytes_seen(self, kv_kind: KVKind, positions: int) -> int:
        """Returns the bytes of K and V that a query after `positions` positions reads. A layer with a window reads
        fewer."""
        return sum(
            min(positions, kind.window or positions) * kind.token_bytes(kv_kind) for kind in self.program.paged()
        )

    def cache_needs(self, kv_kind: KVKind, context_tokens: int, max_sequences: int, max_step_tokens: int) -> CacheNeeds:
        """Returns the memory that the caches need for `max_sequences` sequences of `context_tokens` positions each."""
        groups = cache_groups(self.program).pages
        pages = tuple(GroupBytes(page_bytes(group, kv_kind), group.window) for group in groups)
        return CacheNeeds(pages, self.state_bytes(), context_tokens, max_sequences, max_step_tokens)

    def state_bytes(self) -> int:
        """Returns the bytes of the states of all layers for one sequence. They do not depend on the sequence's length.
        """
        return sum(F32_BYTES * state.elements for state in self.program.states())

    @property
    def has_latents(self) -> bool:
        """Whether there are caches of latents in place of K and V."""
        return any(isinstance(kind, LatentKV) for kind in self.program.paged())

    @property
    def hard_keys(self) -> str:
        """The reason why K and V are bf16 by default although weights are rounded, as a phrase such as "heads of 256
        dimensions". The phrase is "" where int8 adds little to the error.

        A bias makes some channels of K many times as large as the others, and one scale stands for all of them. Keys
        that lose the shared part of their bias before they are kept (ADR 83) are not counted. int8 then adds 6 to 8% to
        the error of 8-bit weights, and less to that of others.
        """
        widest = max((kind.head_dim for kind in self.program.paged()), default=0)
        if widest >= WIDE_HEAD:
            return f"heads of {widest} dimensions"
        biased = sum(weight.role == KEYS and bool(weight.bias) for weight in self.program.weights)
        shifted = sum(vector.form is VectorForm.SHARED_BIAS for vector in self.program.vectors)
        return "a bias on its keys" if widest and biased > shifted else ""

    @property
    def whole_prompts(self) -> bool:
        """Whether positions see later positions, so that a prompt must be computed in one step."""
        return any(kind.ahead for kind in self.program.paged())

    @property
    def windows(self) -> tuple[int, ...]:
        """How many positions a query sees, for each layer with K and V; 0 means all."""
        return tuple(kind.window for kind in self.program.paged())

    @property
    def paged_kinds(self) -> tuple[PagedKV, ...]:
        """The kind of each layer that keeps K and V, in the program's order."""
        return tuple(self.program.paged())
