"""Names the parts of this package that guess with heads or layers, read images, or keep pages on disk. Each is imported
when it is first used.

The module `optional` does the same for other parts. These parts are not named there, because modules that they import
use `optional`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twostroke.types.lazy_module import LazyModule

if TYPE_CHECKING:
    from twostroke.assembly import ahead, disk, heads, sight
else:
    ahead = LazyModule("twostroke.assembly.ahead")
    disk = LazyModule("twostroke.assembly.disk")
    heads = LazyModule("twostroke.assembly.heads")
    sight = LazyModule("twostroke.assembly.sight")

__all__ = ["ahead", "disk", "heads", "sight"]
