"""The caches of a program that are managed together, and the size of one page of each group."""

from __future__ import annotations

from tests.models.families.stored import FAMILIES, config_of
from twostroke.models.common.registry import read_model
from twostroke.ops.program.cache_groups import FullPages, WindowPages, cache_groups, page_bytes
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import PagedKV
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind


def program_of(family: str) -> Program:
    return read_model(config_of(family)).program


def test_every_cache_is_in_exactly_one_group() -> None:
    for family in FAMILIES:
        program = program_of(family)
        groups = cache_groups(program)
        grouped = [cache for group in groups.pages for cache in group.caches]
        grouped += groups.states.caches if groups.states is not None else ()
        assert sorted(cache.index for cache in grouped) == [cache.index for cache in program.caches], family
        windows = [group.window for group in groups.pages]
        assert windows == sorted(set(windows)), "full pages first, then windows, each once"
        for group in groups.pages:
            assert isinstance(group, WindowPages if group.window else FullPages)
            assert {cache.kind.window for cache in group.caches if isinstance(cache.kind, PagedKV)} == {group.window}


def test_pages_of_all_groups_together_are_those_of_all_layers() -> None:
    for family in FAMILIES:
        model = read_model(config_of(family))
        for kind in KVKind:
            found = sum(page_bytes(group, kind) for group in cache_groups(model.program).pages)
            assert found == PAGE_TOKENS * model.kv_bytes_per_token(kind), family


def test_a_model_of_windows_alone_has_no_full_group() -> None:
    (group,) = cache_groups(program_of("mistral-window")).pages
    assert isinstance(group, WindowPages) and group.window > 0
