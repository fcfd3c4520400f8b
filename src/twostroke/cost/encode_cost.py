"""Predicts how long the encode of an image takes: it is a step of the encoder's program in which all patches see each
other."""

from __future__ import annotations

from msgspec import Struct

from twostroke.cost.encode_pieces import EncodeWalk, PieceKind
from twostroke.cost.shape import Segment, StepCost
from twostroke.types.images import ImageTile
from twostroke.types.plan import Role


class EncodeCost(Struct, frozen=True):
    """cost: predicts steps of the encoder. merge: the patches that become one image row. layers: the number of layers
    of the encoder. window: the patches of a window; 0 without windows. whole: the layers that see all patches although
    there are windows."""

    cost: StepCost
    merge: int
    layers: int = 1
    window: int = 0
    whole: frozenset[int] = frozenset()

    def seconds(self, rows: int) -> float:
        """Returns the predicted seconds of a square that becomes `rows` image rows."""
        patches = rows * self.merge
        whole_s = self.cost.predict([_seeing_all(patches, rows)]).seconds
        if not self.window or patches <= self.window:
            return whole_s
        full, rest = divmod(patches, self.window)
        sizes = [self.window] * full + ([rest] if rest else [])
        windows = [_seeing_all(size, rows if place == 0 else 0) for place, size in enumerate(sizes)]
        share = len(self.whole) / self.layers
        return share * whole_s + (1 - share) * self.cost.predict(windows).seconds

    def tile_s(self, tile: ImageTile) -> float:
        """Returns the predicted seconds of a tile, with all its squares."""
        if tile.sheet is None:
            return self.seconds(tile.rows)
        return tile.sheet.squares * self.seconds(tile.sheet.side**2) + self.piece_s(PieceKind.SHEET, tile.rows, 0)

    def walk_of(self, tile: ImageTile, patches: int | None = None) -> EncodeWalk:
        """Returns the pieces into which the encode of a tile is divided. patches: the patches and other rows of the
        tile, or of each of its squares, where they are known."""
        if tile.sheet is None:
            return self.walk(tile.rows, patches)
        return self.walk(tile.sheet.side**2, patches, tile.sheet.squares, tile.rows)

    def walk(self, rows: int, patches: int | None = None, times: int = 1, sheet: int = 0) -> EncodeWalk:
        """Returns the pieces of squares that each become `rows` image rows. patches: the patches and other rows of a
        square, where they are known. times: the number of such squares. sheet: the image rows that all squares make
        together."""
        count = rows * self.merge if patches is None else patches
        parts = [PieceKind.PRODUCTS]
        for layer in range(self.layers):
            windowed = self.window and layer not in self.whole
            parts += [PieceKind.WINDOWS if windowed else PieceKind.ATTENTION, PieceKind.PRODUCTS]
        ends = (PieceKind.SHEET,) if sheet else ()
        return EncodeWalk((*((*parts, PieceKind.HEAD) * times), *ends), count, rows, self.piece_s, sheet)

    def piece_s(self, kind: PieceKind, rows: int, patches: int) -> float:
        """Returns the predicted seconds of one piece of `rows` rows. patches: the patches of the whole square."""
        if kind in (PieceKind.HEAD, PieceKind.SHEET):  # one row of a sheet moves less data than the head multiplies
            return self._of(Segment(0, rows, False, Role.PREFILL, scored=rows), "head")
        if kind is PieceKind.PRODUCTS:
            made = self.cost.predict([Segment.prefill(0, rows, False)]).parts
            own_s = sum(part.seconds for part in made if part.name not in ("attention", "head"))
            return own_s / (self.layers + 1)
        seen = min(self.window, patches) if kind is PieceKind.WINDOWS else patches
        # The segment has as many query-key pairs as causal rows whose middle row sees `seen` positions.
        begin = max(0, seen - (rows + 1) // 2)
        return self._of(Segment.prefill(begin, rows, False), "attention") / self.layers

    def _of(self, segment: Segment, name: str) -> float:
        return sum(part.seconds for part in self.cost.predict([segment]).parts if part.name == name)


def _seeing_all(patches: int, rows: int) -> Segment:
    """Patches that see each other in both directions have as many pairs as causal rows that begin at half of them."""
    return Segment((patches - 1) // 2, patches, False, Role.PREFILL, scored=rows)
