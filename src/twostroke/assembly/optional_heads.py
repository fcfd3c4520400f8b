"""The parts of this room that guess with heads or layers, or read images, imported with their first use.

They stand apart from `optional`, which they use themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twostroke.types.lazy_module import LazyModule

if TYPE_CHECKING:
    from twostroke.assembly import ahead, heads, sight
else:
    ahead = LazyModule("twostroke.assembly.ahead")
    heads = LazyModule("twostroke.assembly.heads")
    sight = LazyModule("twostroke.assembly.sight")

__all__ = ["ahead", "heads", "sight"]
