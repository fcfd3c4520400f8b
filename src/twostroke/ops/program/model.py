"""Model: what a model file makes of a config: its program, and the few facts that are not in it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from twostroke.cost.cache_needs import CacheNeeds, GroupBytes
from twostroke.ops.program.cache_groups import cache_groups, page_bytes
from twostroke.ops.program.op import FormatChoice
from twostroke.ops.program.program import Program
from twostroke.ops.program.stack import ExpertStack
from twostroke.ops.program.values import LatentKV, PagedKV
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import KVKind

F32_BYTES = 4


@dataclass(frozen=True, eq=False, slots=True)
class CommonFacts:
    """What a model file reads from the config next to its program.

    max_positions: the longest sequence. eos_token_ids may be empty. dtype: the saved dtype that the checkpoint names,
    "float32", "bfloat16" or "float16". ignored: tensors of the checkpoint that may be there and are not read; an entry
    that ends with a dot is the beginning of names. optional_prefix: what names of tensors begin with in the program,
    and in some checkpoints only. stored_prefixes: beginnings of names in some checkpoints, each with what the program
    has in its place. stacks: stacked tensors of experts, in some checkpoints. zeros: endings of names of tensors that
    are zero where a checkpoint lacks them. copies: beginnings of names that may be there a second time, each with what
    the program reads in its place; the numbers must be the same. read_elsewhere: names of tensors that another program
    reads.
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
    """A model in numbers. plain: the program as its file traced it. program: the same with calls fused.

    task: what a row of its result is: logits of the next token, an embedding, or scores. part: which part of a model
    that several processes hold together, in words; empty for the whole. groups: the page groups of the whole model that
    this part has; None for all.
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
        """The facts with what belongs to them."""
        known = {field.name: getattr(facts, field.name) for field in fields(CommonFacts)}
        return cls(**known, architecture=architecture, plain=plain, program=program, task=task)

    def rope_bytes(self, positions: int) -> int:
        """Bytes of the tables of rotations for this many positions: cos and sin, float32."""
        return sum(positions * rope.spec.rotary_dim * F32_BYTES for rope in self.program.ropes)

    @property
    def longest_context(self) -> int:
        """Positions that can be asked for: max_positions, or what its rope scaling reaches where that is more."""
        return max((self.max_positions, *(rope.spec.reach for rope in self.program.ropes)))

    def parameters(self) -> int:
        """Trained numbers; tied embeddings are counted once, and adapters are not."""
        return self.plain.parameters

    def weight_bytes(self, format_for: FormatChoice) -> int:
        """Bytes of all packed weights: matrices in their formats with padding and scales, vectors as float32."""
        program = self.program
        matrices = sum(
            weight.matrices * format_for(weight).total_bytes(weight.rows, weight.columns)
            + F32_BYTES * sum(part.length for part in weight.bias)
            for weight in program.weights
        )
        return matrices + F32_BYTES * sum(vector.length for vector in program.vectors)

    def kv_bytes_per_token(self, kv_kind: KVKind) -> int:
        """Bytes of K and V of one position in all layers."""
        return sum(kind.token_bytes(kv_kind) for kind in self.program.paged())

    def kv_bytes_seen(self, kv_kind: KVKind, positions: int) -> int:
        """Bytes of K and V that a query after `positions` positions reads; windows make them fewer."""
        return sum(
            min(positions, kind.window or positions) * kind.token_bytes(kv_kind) for kind in self.program.paged()
        )

    def cache_needs(self, kv_kind: KVKind, context_tokens: int, max_sequences: int, max_step_tokens: int) -> CacheNeeds:
        """What the caches need for `max_sequences` sequences of `context_tokens` positions each."""
        groups = cache_groups(self.program).pages
        pages = tuple(GroupBytes(page_bytes(group, kv_kind), group.window) for group in groups)
        return CacheNeeds(pages, self.state_bytes(), context_tokens, max_sequences, max_step_tokens)

    def state_bytes(self) -> int:
        """Bytes of what a sequence keeps whatever its length: the states of all layers."""
        return sum(F32_BYTES * state.elements for state in self.program.states())

    @property
    def has_latents(self) -> bool:
        """Are there caches of latents in place of K and V?"""
        return any(isinstance(kind, LatentKV) for kind in self.program.paged())

    @property
    def widest_head(self) -> int:
        """The most dimensions of a head of K; 0 in a model without K and V."""
        return max((kind.head_dim for kind in self.program.paged()), default=0)

    @property
    def whole_prompts(self) -> bool:
        """Do positions see later ones, so that a prompt must be computed in one step?"""
        return any(kind.ahead for kind in self.program.paged())

    @property
    def windows(self) -> tuple[int, ...]:
        """How many positions a query sees, for each layer with K and V; 0 means all."""
        return tuple(kind.window for kind in self.program.paged())

    @property
    def paged_kinds(self) -> tuple[PagedKV, ...]:
        """The kind of each layer that keeps K and V, in the program's order."""
        return tuple(self.program.paged())
