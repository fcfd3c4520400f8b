"""Packs a model's weights before its first start, exactly as that start would, so that the start only maps them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twostroke.assembly.find import find_model
from twostroke.assembly.weights import Progress, Report, checked, load
from twostroke.weights.packed.cache_choice import NO_CACHE


def pack_ahead(model: str, options: Mapping[str, Any], progress: Progress | None, report: Report) -> Path | None:
    """Writes the file of packed weights and returns its path; None where nothing is kept on the disk.

    options: the options of an engine. Variables of the environment count too, so that the next start finds the file.
    Raises TwostrokeError.
    """
    found = find_model(model, options)
    resolved = found.resolver.resolved()
    if resolved.disk.cache == NO_CACHE:
        return None
    with ExitStack() as closing:
        loaded = load(found.folder.path, found.part, resolved, found.machine, progress, report)
        if loaded.file is None:
            return None
        check = checked(loaded, report, closing)
        if loaded.file.unfinished:
            check.start()
            check.finish()
    return loaded.file.path if loaded.file.path.is_file() else None
