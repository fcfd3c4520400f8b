"""Reads a model's files ahead, before the engine is imported. The command line names the model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from twostroke.assembly.settings.env import asked_by_environment, free_memory_bytes, user_cache_folder
from twostroke.weights.early.reading import begin_reading, weight_files
from twostroke.weights.early.record import files_of, named_model
from twostroke.weights.packed.cache_choice import kept_folder

LOADING = frozenset({"serve", "generate", "chat", "run", "replica", "start", "server", "complete", "completion"})
"""Commands and their aliases that load a model in this process, or in a process that they start at once."""


def loads_a_model(words: Sequence[str]) -> bool:
    """Returns whether the command line `words` loads a model."""
    return bool(words) and words[0] in LOADING


def read_early(words: Sequence[str]) -> None:
    """Begins to read the files that the command line `words` will load, where they are known and not in memory. Wrong
    words are no error here: the command itself reports them."""
    if not loads_a_model(words):
        return
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # the home or the folder may not exist
        files = list(expected_files(words[1:]))
        if files:
            begin_reading(files, free_memory_bytes())


def expected_files(words: Sequence[str]) -> Iterator[str]:
    """Yields the files that the engine will read, found by the record of the last start or by the model's name alone.
    """
    asked = asked_by_environment()
    cache, weights = (_value(words, name) or asked.get(name) for name in ("cache", "weights"))
    folder = kept_folder(cache, user_cache_folder())
    if folder is None:
        named = (word for word in words if not word.startswith("-"))
        yield from next(filter(None, (list(weight_files(word)) for word in named)), [])
        return
    model = named_model(words, folder)
    if model is not None:
        yield from files_of(folder, model, weights)


def _value(words: Sequence[str], name: str) -> str | None:
    """Returns the value after the last --NAME or --NAME= among `words`; None without one."""
    flag, found = f"--{name}", None
    for place, word in enumerate(words):
        if word == flag and place + 1 < len(words):
            found = words[place + 1]
        elif word.startswith(flag + "="):
            found = word[len(flag) + 1 :]
    return found
