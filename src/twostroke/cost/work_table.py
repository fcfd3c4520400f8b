"""WorkTable: what a step of one model in one choice of formats computes and moves, as numbers to multiply.

Made from a traced program by ops/program/work_table.py. A step's work is linear in five counts. They are its rows, the
rows that need logits, its sequences, the pairs of a row and a position that it sees, and the cached positions that it
reads. Banks of experts add what is read of them.
"""

from __future__ import annotations

from msgspec import Struct

from twostroke.cost.work import Work
from twostroke.types.spec.formats import KVKind, WeightKind


class SeenLayers(Struct, frozen=True):
    """All layers whose attention has the same window; window 0 sees all positions.

    pair_flops: the FLOPs for one row and one position that it sees. position_bytes: the bytes of K and V of one cached
    position. later_flops: the FLOPs for one row and one later position that it sees, as rows of an image may; 0 where
    rows see none.
    """

    window: int
    pair_flops: int
    position_bytes: int
    later_flops: int = 0


class Products(Struct, frozen=True):
    """Products with matrices of one kind, together. elements: the number of elements of the matrices. features: the
    number of their inputs and outputs.
    """

    kind: WeightKind
    elements: int
    features: int


class ExpertBank(Struct, frozen=True):
    """One bank of `experts` matrices, of which each row uses `chosen`. expert_bytes: the bytes of one matrix. kind,
    elements and features are also those of one matrix."""

    experts: int
    chosen: int
    expert_bytes: int
    kind: WeightKind
    elements: int
    features: int

    def touched(self, rows: int) -> float:
        """Returns how many experts are chosen by at least one of `rows` rows, on average: E (1 - (1 - k/E)^rows). Rows
        are taken to choose all experts equally often."""
        return self.experts * (1.0 - (1.0 - self.chosen / self.experts) ** rows)


class AdapterBanks(Struct, frozen=True):
    """The matrices of adapters. row: the work of each row that has an adapter. banks: each bank has one matrix for each
    adapter; a step reads the matrices of the adapters that its rows have."""

    row: Work
    banks: tuple[ExpertBank, ...]

    @property
    def adapter_bytes(self) -> int:
        """The bytes of one adapter in all banks."""
        return sum(bank.expert_bytes for bank in self.banks)


class WorkTable(Struct, frozen=True):
    """The FLOPs and bytes of a model's step. A field `NAME_row` is the work of each row in the part NAME, and
    `NAME_once` the work of that part once in a step that has such rows.

    layers: the products of all rows. head: the products of rows that need logits. other: norms, rope, KV writes and
    embedding rows. selected: norms and such ops that only the rows with logits need, after the last layer.
    attention_row: the work of attention and scans, without the part that depends on the positions seen. sequence: the
    work of reading and writing a sequence's states. weight_bytes: the bytes of the whole model. heads, query_heads: the
    KV heads, and the query heads, of all layers together. adapters: None when the model's program computes no adapters.
    """

    num_layers: int
    vocab_size: int
    kv_kind: KVKind
    weight_bytes: int
    kv_token_bytes: int
    layers_once: Work
    layers_row: Work
    head_once: Work
    head_row: Work
    attention_row: Work
    sequence: Work
    other_once: Work
    other_row: Work
    selected_once: Work
    selected_row: Work
    seen: tuple[SeenLayers, ...]
    layer_products: tuple[Products, ...]
    head_products: tuple[Products, ...]
    banks: tuple[ExpertBank, ...]
    heads: int
    query_heads: int
    adapters: AdapterBanks | None = None

    @property
    def head_product(self) -> Products:
        """The head's first product. A head without products, such as that of an embedding model, gives a product of no
        elements."""
        return next(iter(self.head_products), Products(self.layer_products[0].kind, 0, 0))
