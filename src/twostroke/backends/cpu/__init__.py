"""The native CPU backend: one library for each instruction-set level, chosen by CPUID."""

from __future__ import annotations

from twostroke.backends.cpu.library import LEVELS, available_levels, best_level, better_level, require_level
from twostroke.backends.cpu.ops import CpuOps
from twostroke.backends.cpu.packer import NativePacker

__all__ = ["LEVELS", "CpuOps", "NativePacker", "available_levels", "best_level", "better_level", "require_level"]
