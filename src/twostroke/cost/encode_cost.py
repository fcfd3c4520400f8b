"""What the encode of a part of an image costs: a step of the encoder's program in which all patches see each other."""

from __future__ import annotations

from msgspec import Struct

from twostroke.cost.shape import Segment, StepCost
from twostroke.types.plan import Role


class EncodeCost(Struct, frozen=True):
    """cost: of steps of the encoder. merge: patches of an image row. window: patches of a window; 0 for none.
    whole_share: the share of layers that see the whole part all the same."""

    cost: StepCost
    merge: int
    window: int = 0
    whole_share: float = 1.0

    def seconds(self, rows: int) -> float:
        """The seconds of a part that becomes this many image rows."""
        patches = rows * self.merge
        whole_s = self.cost.predict([_seeing_all(patches, rows)]).seconds
        if not self.window or patches <= self.window:
            return whole_s
        full, rest = divmod(patches, self.window)
        sizes = [self.window] * full + ([rest] if rest else [])
        windows = [_seeing_all(size, rows if place == 0 else 0) for place, size in enumerate(sizes)]
        return self.whole_share * whole_s + (1 - self.whole_share) * self.cost.predict(windows).seconds


def _seeing_all(patches: int, rows: int) -> Segment:
    """Patches that see each other in both directions have as many pairs as causal rows that begin at half of them."""
    return Segment((patches - 1) // 2, patches, False, Role.PREFILL, scored=rows)
