"""Decides whether computed prompts are kept on disk, and how many bytes of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from twostroke.assembly.settings.engine_settings import DiskSettings
from twostroke.assembly.settings.option_values import DISK_AUTO
from twostroke.assembly.settings.resolver import Resolver
from twostroke.weights.packed.cache_choice import NO_CACHE

AUTO_BYTES, AUTO_SHARE = 10_000_000_000, 0.05


def resolve_kv_disk(resolver: Resolver, why_not: str, kept: Path | None) -> int:
    """Returns the most bytes that are kept; 0 where nothing is kept. why_not: the reason why this engine cannot keep
    any; empty where it can. kept: the cache folder; None without one."""
    asked, source = resolver.asked_value(DiskSettings.kv_disk), resolver.source_of(DiskSettings.kv_disk)
    if not asked:
        value, reason = 0, source or "default: what clients write is kept on no disk unless it is asked for"
    elif why_not:
        value, reason = 0, f"{source} keeps nothing: {why_not}"
    elif kept is None:
        value, reason = 0, f"{source} keeps nothing: the cache is {NO_CACHE}"
    elif asked == DISK_AUTO:
        value = min(AUTO_BYTES, int(AUTO_SHARE * _free_bytes(kept)))
        reason = f"{source}: 10 GB, at most 5% of what is free"
    else:
        value, reason = asked, source
    resolver.put(DiskSettings.kv_disk, value, reason)
    return int(value)


def why_no_disk(*, whole_prompts: bool, divided: bool, on_device: bool, guessed: bool) -> str:
    """Returns why this engine cannot store pages on disk; empty where it can. guessed: a draft model or heads guess
    tokens."""
    if whole_prompts:
        return "the model computes each prompt whole, so nothing of it is shared"
    if divided:
        return "the model is divided among several processes"
    if on_device:
        return "its pages are in the memory of a device"
    return "what guesses has pages of its own" if guessed else ""


def _free_bytes(folder: Path) -> int:
    """Returns the free bytes of the disk on which the folder is or will be."""
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
