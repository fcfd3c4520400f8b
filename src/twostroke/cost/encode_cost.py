"""Predicts how long an encoder takes for an image, in all and for each kind of piece into which the work is divided."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from twostroke.cost.encode_pieces import EncodePart, EncodeWalk
from twostroke.cost.shape import Segment, StepCost
from twostroke.types.encode import PieceKind
from twostroke.types.images import ImageTile, RowFold

NO_PRODUCTS = ("attention", "head", "host")
"""The parts of a predicted step that are left out of the time of ops on single rows, such as products and norms:
attention, the logits (`head`), and the Python code of the step (`host`)."""


class PartCosts(NamedTuple):
    """The cost models of the parts of an encoder's program. patches: all ops before the first attention. layers: all
    ops from there to the end of the body. head: the ops of the head, for all rows. fold: the ops from the place at
    which patches become fewer rows to the next attention; `layers` is without them."""

    patches: StepCost
    layers: StepCost
    head: StepCost
    fold: StepCost | None = None


class EncodeCost(Struct, frozen=True):
    """Predicts the encodes of one model. costs: predict the parts of the encoder. merge: the patches that become one
    image row. layers: the number of layers of the encoder. window: the patches of a window; 0 without windows. whole:
    the layers that see all patches although there are windows. fold: the place in the layers at which patches become
    fewer rows. written_s: the seconds in which the host writes the inputs of one patch."""

    costs: PartCosts
    merge: int
    layers: int = 1
    window: int = 0
    whole: frozenset[int] = frozenset()
    fold: RowFold | None = None
    written_s: float = 0.0

    def seconds(self, rows: int) -> float:
        """Returns the predicted seconds of encoding one crop of an image that becomes `rows` image rows."""
        return sum(self.walk(rows).seconds_by_kind().values())

    def tile_s(self, tile: ImageTile) -> float:
        """Returns the predicted seconds of encoding a tile. A tile may consist of several square crops, each of which
        is encoded alone; all of them count."""
        return sum(self.tile_parts(tile).values())

    def tile_parts(self, tile: ImageTile) -> dict[PieceKind, float]:
        """Returns the predicted seconds of a tile by kind of piece."""
        return self.walk_of(tile).seconds_by_kind()

    def walk_of(self, tile: ImageTile, patches: int | None = None) -> EncodeWalk:
        """Returns the pieces into which the encode of a tile is divided. patches: the rows of the tile inside the
        encoder, or of each of its square crops, where they are known."""
        if tile.sheet is None:
            return self.walk(tile.rows, patches)
        return self.walk(tile.sheet.side**2, patches, tile.sheet.squares, tile.rows)

    def walk(self, rows: int, patches: int | None = None, times: int = 1, sheet: int = 0) -> EncodeWalk:
        """Returns the pieces in which an image is encoded as `times` crops, one after the other. rows: the image rows
        of each crop. patches: the rows of a crop inside the encoder, where they are known. sheet: the image rows of all
        crops together, for models that join the crops line by line at the end; else 0."""
        count = rows * self.merge if patches is None else patches
        parts = [EncodePart(PieceKind.PATCHES, count)]
        for layer in range(self.layers):
            windowed = self.window and layer not in self.whole
            parts.append(EncodePart(PieceKind.WINDOWS if windowed else PieceKind.ATTENTION, count))
            parts.append(EncodePart(PieceKind.PRODUCTS, count))
            if self.fold is not None and layer == self.fold.layer:
                count //= self.fold.group
                parts.append(EncodePart(PieceKind.FOLD, count))
        ends = [EncodePart(PieceKind.SHEET, sheet)] if sheet else []
        return EncodeWalk([*([*parts, EncodePart(PieceKind.HEAD, rows)] * times), *ends], self.piece_s)

    def piece_s(self, kind: PieceKind, rows: int, patches: int) -> float:
        """Returns the predicted seconds of computing `rows` rows of one part of the encoder. kind: the kind of the
        part. patches: the number of all rows of the part; in attention, each row sees all of them or those of its
        window."""
        if kind is PieceKind.PATCHES:
            return _rows_s(self.costs.patches, rows) + rows * self.written_s
        if kind in (PieceKind.HEAD, PieceKind.SHEET):  # one row of a sheet moves less data than the head multiplies
            return _rows_s(self.costs.head, rows)
        if kind is PieceKind.FOLD and self.costs.fold is not None:
            return _rows_s(self.costs.fold, rows)
        if kind is PieceKind.PRODUCTS:
            return _rows_s(self.costs.layers, rows) / self.layers
        seen = min(self.window, patches) if kind is PieceKind.WINDOWS else patches
        own = min(rows, seen)  # a piece may have many windows, each of which is a sequence
        made = self.costs.layers.predict([_seeing(seen, own)]).parts
        return sum(part.seconds for part in made if part.name == "attention") * rows / own / self.layers

    def flops(self, tile: ImageTile) -> int:
        """Returns the FLOPs of encoding one tile whose patches all see each other; a multiply-add counts as two. The
        encoder must have no windows and no fold (a place at which groups of neighbouring rows become one row each)."""
        patches, costs = tile.rows * self.merge, self.costs
        own = (costs.patches, [Segment.prefill(0, patches, False)]), (costs.layers, [_seeing(patches, patches)])
        steps = (*own, (costs.head, [Segment.prefill(0, tile.rows, False)]))
        return sum(cost.predict(segments).work.flops for cost, segments in steps)


def _rows_s(cost: StepCost, rows: int) -> float:
    made = cost.predict([Segment.prefill(0, rows, False)]).parts
    return sum(part.seconds for part in made if part.name not in NO_PRODUCTS)


def _seeing(seen: int, rows: int) -> Segment:
    """Returns a causal segment with `rows` rows and about rows * seen query-key pairs. It stands for rows without a
    causal mask, each of which sees `seen` positions: the cost of both is about the same."""
    return Segment.prefill(max(0, seen - (rows + 1) // 2), rows, False)
