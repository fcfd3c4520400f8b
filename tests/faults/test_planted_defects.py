"""The rules can fail: each defect that is planted into the core is found by a check in one of a few hundred
schedules."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.world import World
from twostroke.engine.beams.book import BeamBook
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.page_group import PageGroup, PageTable
from twostroke.engine.cache.pages import PagePool
from twostroke.engine.cache.prefix_tree import Node, PrefixTree
from twostroke.engine.cache.sparse_tree import SparseTree
from twostroke.engine.cache.state_group import SlotTable, StateGroup
from twostroke.engine.cache.window_group import WindowGroup
from twostroke.engine.scheduler.limits.cache_limiters import SnapshotPoints
from twostroke.engine.scheduler.policy import ArrivalPolicy
from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.plan import PlannedSequence

Plant = Callable[[pytest.MonkeyPatch], None]


def forgets_salt(patch: pytest.MonkeyPatch) -> None:
    real = PrefixTree.root
    patch.setattr(PrefixTree, "root", lambda tree, salt: real(tree, ""))
    match = PrefixTree.match
    patch.setattr(PrefixTree, "match", lambda tree, salt, tokens, most: match(tree, "", tokens, most))


def shares_without_counting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrefixTree, "share", lambda tree, node: node.page_id)


def evicts_what_is_used(patch: pytest.MonkeyPatch) -> None:
    def give_back(tree: PrefixTree, node: Node) -> None:
        tree._pool.release(node.page_id)
        tree._uses += 1
        node.last_use = tree._uses
        tree._num_unshared += 1
        tree._offer(node)

    patch.setattr(PrefixTree, "give_back", give_back)


def leaks_on_a_failed_growth(patch: pytest.MonkeyPatch) -> None:
    def grow(group: PageGroup, table: PageTable, num_pages: int) -> bool:
        while len(table.page_ids) < num_pages:
            page_id = group.pool.allocate()
            if page_id is None:
                page_id = group.tree.evict_one()
            if page_id is None:
                table.page_ids.pop()
                return False
            table.page_ids.append(page_id)
        return True

    patch.setattr(PageGroup, "grow", grow)


def loses_tokens_at_a_preemption(patch: pytest.MonkeyPatch) -> None:
    real = Scheduler._preempt

    def preempt(scheduler: Scheduler, sequence: Sequence, *others: Any) -> None:
        computed = sequence.computed
        real(scheduler, sequence, *others)
        sequence.known = sequence.known[: computed or None]

    patch.setattr(Scheduler, "_preempt", preempt)


def preempts_the_first(patch: pytest.MonkeyPatch) -> None:
    def last_resort(queues: Queues, kept: set[str]) -> Sequence | None:
        candidates = [each for each in queues.running if each.request.request_id not in kept]
        return min(candidates, key=lambda each: each.admission or 0, default=None)

    patch.setattr(Queues, "last_resort", last_resort)


def admits_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    real = ArrivalPolicy.accept

    def accept(policy: ArrivalPolicy, sequence: Sequence, *others: Any) -> None:
        real(policy, sequence, *others)
        sequence.rank = (sequence.request.priority, 0, 0.0, -sequence.number)

    patch.setattr(ArrivalPolicy, "accept", accept)


def frees_in_the_tree(patch: pytest.MonkeyPatch) -> None:
    real = PagePool.release

    def release(pool: PagePool, page_id: int) -> int:
        owners = real(pool, page_id)
        return real(pool, page_id) if owners == 1 and page_id == 3 else owners

    patch.setattr(PagePool, "release", release)


def tells_twice(patch: pytest.MonkeyPatch) -> None:
    real = BeamBook.abort
    patch.setattr(BeamBook, "abort", lambda book, name, now: real(book, name, now) * 2)


def ends_without_an_event(patch: pytest.MonkeyPatch) -> None:
    real = BeamBook.abort

    def abort(book: BeamBook, name: str, now: float) -> list[object]:
        real(book, name, now)
        return []

    patch.setattr(BeamBook, "abort", abort)


def computes_nothing_of_a_found_prompt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CacheManager, "spared_tokens", lambda cache, matched, _: len(matched) * cache.page_tokens)


def believes_a_wrong_guess(patch: pytest.MonkeyPatch) -> None:
    real = Scheduler._take_tokens

    def take_tokens(scheduler: Scheduler, sequence: Sequence, planned: PlannedSequence, *others: Any) -> object:
        ending = real(scheduler, sequence, planned, *others)
        if planned.draft_token_ids and sequence.remaining:
            sequence.computed += 1
        return ending

    patch.setattr(Scheduler, "_take_tokens", take_tokens)


def gives_back_too_many_pages(patch: pytest.MonkeyPatch) -> None:
    real = CacheManager.truncate

    def truncate(cache: CacheManager, name: str, num_tokens: int) -> None:
        real(cache, name, max(0, num_tokens - cache.page_tokens))

    patch.setattr(CacheManager, "truncate", truncate)


def gives_back_what_is_still_seen(patch: pytest.MonkeyPatch) -> None:
    real = WindowGroup.first_needed
    patch.setattr(WindowGroup, "first_needed", lambda group, pages: min(real(group, pages) + 1, max(0, pages - 1)))


def gives_nothing_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WindowGroup, "first_needed", lambda group, pages: 0)


def goes_on_across_a_gap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WindowGroup, "usable", PageGroup.usable)


def goes_on_without_a_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        StateGroup, "usable", lambda group, path, pages, tokens: min(pages, (tokens - 1) // group.page_tokens)
    )


def begins_with_the_last_ones_state(patch: pytest.MonkeyPatch) -> None:
    real = StateGroup.take_copies
    patch.setattr(StateGroup, "take_copies", lambda group: tuple(pair for pair in real(group) if pair[0] >= 0))


def copies_in_any_order(patch: pytest.MonkeyPatch) -> None:
    real = StateGroup.take_copies
    patch.setattr(StateGroup, "take_copies", lambda group: real(group)[::-1])


def keeps_what_a_failed_step_copied(patch: pytest.MonkeyPatch) -> None:
    real = StateGroup.settle_copies
    patch.setattr(StateGroup, "settle_copies", lambda group, failed: real(group, False))


def snapshots_within_a_page(patch: pytest.MonkeyPatch) -> None:
    """Chunks do not end where snapshots are taken, and the state at the end of a step is taken as the state at the
    page's end."""
    real = StateGroup.commit
    patch.setattr(SnapshotPoints, "limit", lambda limiter, sequence, wanted_tokens, step: wanted_tokens)

    def commit(group: StateGroup, table: SlotTable, computed: int, known: list[int]) -> None:
        real(group, table, computed // group.page_tokens * group.page_tokens, known)

    patch.setattr(StateGroup, "commit", commit)


def forgets_to_unpin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SparseTree, "unpin", lambda tree, node: None)


DEFECTS: tuple[Plant, ...] = (
    gives_back_what_is_still_seen,
    gives_nothing_back,
    goes_on_across_a_gap,
    goes_on_without_a_state,
    begins_with_the_last_ones_state,
    copies_in_any_order,
    keeps_what_a_failed_step_copied,
    snapshots_within_a_page,
    forgets_to_unpin,
    forgets_salt,
    shares_without_counting,
    evicts_what_is_used,
    leaks_on_a_failed_growth,
    loses_tokens_at_a_preemption,
    preempts_the_first,
    admits_the_newest_first,
    frees_in_the_tree,
    tells_twice,
    ends_without_an_event,
    computes_nothing_of_a_found_prompt,
    believes_a_wrong_guess,
    gives_back_too_many_pages,
)


def is_finding(error: Exception) -> bool:
    """Whether a check failed: an oracle's `assert`, or a `raise ValueError` of the cache's own checks.

    Any other error is a crash of the defect itself and proves nothing about the checks.
    """
    if isinstance(error, AssertionError):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    return type(error) is ValueError and (last.line or "").startswith("raise ValueError")


def findings(seeds: range) -> Iterator[str]:
    for seed in seeds:
        try:
            World(seed).run()
        except Exception as error:
            if is_finding(error):
                yield f"{seed}: {type(error).__name__}: {error}"


@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert next(findings(range(400)), None) is not None


@pytest.mark.parametrize("crash", [lambda: len(), lambda: None.gone, lambda: [].remove(0)])  # type: ignore[call-arg]
def test_a_crash_is_no_finding(crash: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """These are TypeError, AttributeError, and a ValueError that no check raised."""
    monkeypatch.setattr(Scheduler, "_preempt", lambda *_: crash())
    with pytest.raises((TypeError, AttributeError, ValueError)):
        World(5).run()
    assert list(findings(range(10))) == []


def test_nothing_is_found_where_nothing_is_planted() -> None:
    assert list(findings(range(30))) == []
