"""A start reads a model's files before it imports the engine; the command line names the model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from twostroke.assembly.settings.env import asked_by_environment, free_memory_bytes, user_cache_folder
from twostroke.weights.early.reading import begin_reading, weight_files
from twostroke.weights.early.record import files_of, named_model
from twostroke.weights.packed.cache_choice import kept_folder

LOADING = frozenset({"serve", "generate", "chat", "run", "replica", "start", "server", "complete", "completion"})
"""Verbs, and other words for them, that load a model in this process or in one that it starts at once."""


def loads_a_model(words: Sequence[str]) -> bool:
    """Whether the command of these words loads a model."""
    return bool(words) and words[0] in LOADING


def read_early(words: Sequence[str]) -> None:
    """Begin to read what the command of these words will load, where that is known and not in memory. Words that mean
    nothing are no error here: the command itself names what is wrong with them."""
    if not loads_a_model(words):
        return
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # the home or the folder may not exist
        files = list(expected_files(words[1:]))
        if files:
            begin_reading(files, free_memory_bytes())


def expected_files(words: Sequence[str]) -> Iterator[str]:
    """The files that the engine will read, by the record of the last start or by the model's name alone."""
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
    """What follows --NAME, or --NAME=, the last time."""
    flag, found = f"--{name}", None
    for place, word in enumerate(words):
        if word == flag and place + 1 < len(words):
            found = words[place + 1]
        elif word.startswith(flag + "="):
            found = word[len(flag) + 1 :]
    return found
