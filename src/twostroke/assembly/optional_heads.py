"""Names modules of this package that are imported when they are first used: speculation with heads or layers, images,
and pages on disk.

Modules that these import use `optional`, which names other such modules. So these cannot be named there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twostroke.types.first_use.lazy_module import LazyModule

if TYPE_CHECKING:
    from twostroke.assembly import disk
    from twostroke.assembly.guessing import ahead, heads
    from twostroke.assembly.images import sight
else:
    ahead = LazyModule("twostroke.assembly.guessing.ahead")
    disk = LazyModule("twostroke.assembly.disk")
    heads = LazyModule("twostroke.assembly.guessing.heads")
    sight = LazyModule("twostroke.assembly.images.sight")

__all__ = ["ahead", "disk", "heads", "sight"]
