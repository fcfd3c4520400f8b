"""The memory that a process needs beside its pools, by its settings.

Knows: settings.
Must not know: the machine, programs, how parts were made.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.config import Resolved, kv_kind
from twostroke.cost.memory import MemoryNeeds
from twostroke.models.common.needs import EngineSizes, memory_needs
from twostroke.program.model import Model


def needs_of(whole: Model, parts: Sequence[Model], settings: Resolved) -> MemoryNeeds:
    """The memory that a process needs which may hold any one of these parts."""
    limits = (settings["context"], settings["max_sequences"], settings["max_step_tokens"])
    return memory_needs(whole, parts, EngineSizes(settings["weights"], kv_kind(settings["kv_format"]), *limits))
