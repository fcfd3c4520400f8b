"""The patterns of calls that the CPU runs faster as one call, in the order in which they are applied."""

from __future__ import annotations

from twostroke.ops.products.feed_forward import fuse_feed_forward
from twostroke.ops.products.linear_add import fuse_linear_add
from twostroke.ops.products.linear_silu import fuse_linear_silu
from twostroke.ops.program.fuse import Pattern

PATTERNS: tuple[Pattern, ...] = (fuse_linear_add, fuse_linear_silu, fuse_feed_forward)
