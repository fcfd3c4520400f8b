"""A few families that together have every op and every kind of cache, for laws that follow from these alone."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from tests.models.families.stored import by_architecture, config_of, generating
from tests.tiers import COVERING, ENCODERS
from twostroke.models.common.registry import read_model
from twostroke.ops.program.cache_groups import cache_groups


@cache
def covering_architectures() -> tuple[str, ...]:
    """Architectures of COVERING and ENCODERS, for laws of programs at each commit. Daily runs have the others."""
    found = by_architecture()
    return tuple(name for name, families in found.items() if set(families) & {*COVERING, *ENCODERS})


@cache
def features(family: str) -> set[str]:
    """The names of a family's ops and caches, and how its caches are grouped."""
    program = read_model(config_of(family)).program
    groups = cache_groups(program)
    windows = sum(1 for each in groups.pages if each.window)
    ops = {type(op).__name__ for op in (*program.body, *program.head)}
    caches = {type(cache.kind).__name__ for cache in program.caches}
    grouping = f"{len(groups.pages)} groups of pages, {windows} windows, states: {groups.states is not None}"
    return ops | caches | {grouping}


def missing(families: Iterable[str], among: Iterable[Iterable[str]] | None = None) -> set[str]:
    """Features of the families of `among`, or of all families that generate text, that `families` lack."""
    known = {name for each in (among or generating().values()) for family in each for name in features(family)}
    return known - {name for family in set(families) for name in features(family)}
