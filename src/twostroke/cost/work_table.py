"""WorkTable: what a step of one model in one choice of formats computes and moves, as numbers to multiply.

Made from a traced program by ops/program/work_table.py. A step's work is linear in its rows, in the rows that need
logits, in its sequences, in the pairs of a row and a position that it sees, and in the cached positions that it reads.
Banks of experts add what is read of them.
"""

from __future__ import annotations

from msgspec import Struct

from twostroke.cost.work import Work
from twostroke.types.spec.formats import KVKind, WeightKind


class SeenLayers(Struct, frozen=True):
    """The layers with attention of one window, together (0: all positions).

    pair_flops: of one row and one position that it sees. position_bytes: K and V of one cached position.
    """

    window: int
    pair_flops: int
    position_bytes: int


class Products(Struct, frozen=True):
    """Products with matrices of one kind, together. elements: of the matrices. features: their inputs and outputs."""

    kind: WeightKind
    elements: int
    features: int


class ExpertBank(Struct, frozen=True):
    """One bank: of `experts` matrices, each row meets `chosen`. expert: the work of reading one; kind, elements and
    features are those of one matrix too."""

    experts: int
    chosen: int
    expert_bytes: int
    kind: WeightKind
    elements: int
    features: int

    def touched(self, rows: int) -> float:
        """Experts that at least one of `rows` rows meets, expected where rows choose evenly: E (1 - (1 - k/E)^rows)."""
        return self.experts * (1.0 - (1.0 - self.chosen / self.experts) ** rows)


class AdapterBanks(Struct, frozen=True):
    """Places for adapters. row: of each row that has one. banks: of each, one matrix is of one adapter; a step
    reads those of the adapters that its rows have."""

    row: Work
    banks: tuple[ExpertBank, ...]

    @property
    def adapter_bytes(self) -> int:
        """The bytes of one adapter in all banks."""
        return sum(bank.expert_bytes for bank in self.banks)


class WorkTable(Struct, frozen=True):
    """`..._once`: in a step that has such rows. `..._row`: for each row. head and selected: of rows that need logits.

    layers, head: products with matrices. other: norms, rope, KV writes, embedding rows; selected: the same for rows
    that need logits. attention_row: of attention and scans, but for what depends on the positions seen. sequence: the
    states that a sequence's rows read and write. weight_bytes: of the whole model. heads: KV heads of all layers
    together; query_heads likewise. adapters: None where the model has no places for them.
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
        """The head's first product; where the head has none, as that of an embedding, one of no elements."""
        return next(iter(self.head_products), Products(self.layer_products[0].kind, 0, 0))
