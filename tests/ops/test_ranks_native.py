"""gather, hand_over and receive between threads in the roles of ranks: any widths, through memory and over sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from queue import Queue

import numpy as np
import pytest

from tests.ops.native import INTEGER_FORMATS, format_id, linear, random_weight
from tests.ops.products.test_stored_native import packed
from tests.patience import PATIENCE_S, is_seen_asleep
from tests.ranks.together import meetings
from tests.tiers import levels
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.exchange import Exchange, memory_bytes
from twostroke.ops.operands import F32Array
from twostroke.ops.reference import ReferenceOps
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import F32, STORED_GROUP, WeightFormat, WeightKind

WIDTH = 3000
FLAT8 = WeightFormat(WeightKind.FLAT8, STORED_GROUP)
LOST = "has ended, or did not come in time"


@pytest.fixture(params=[False, True], ids=["memory", "sockets"])
def three(request: pytest.FixtureRequest) -> Iterator[list[CpuOps]]:
    yield from ranks_of(3, request.param)


@pytest.fixture(params=[False, True], ids=["memory", "sockets"])
def two(request: pytest.FixtureRequest) -> Iterator[list[CpuOps]]:
    yield from ranks_of(2, request.param)


EXCHANGES: dict[int, Exchange] = {}


def ranks_of(count: int, over_sockets: bool) -> Iterator[list[CpuOps]]:
    level = levels()[-1]
    exchanges, keeps = meetings(level, count, WIDTH, over_sockets)
    made = [CpuOps(level, 1) for _ in range(count)]
    for index, (ops, exchange) in enumerate(zip(made, exchanges, strict=True)):
        ops.join(exchange)
        EXCHANGES[index] = exchange
    yield made
    for each in (*made, *exchanges):
        each.close()
    del keeps


def at_once(calls: list[Callable[[], None]]) -> list[BaseException | None]:
    """Runs each in a thread of its own. Returns what each raised."""
    raised: list[BaseException | None] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            calls[index]()
        except BaseException as error:
            raised[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    return raised


def comes_when_the_other_sleeps(early: Callable[[], None], late: Callable[[], None]) -> list[BaseException | None]:
    """Runs both; `late` begins when the thread of `early` is seen asleep. What each raised: AssertionError where that
    thread never slept."""
    begun: Queue[int] = Queue()

    def first() -> None:
        begun.put(threading.get_native_id())
        early()

    def second() -> None:
        asleep = is_seen_asleep(begun.get())
        late()
        assert asleep, "a rank that waits polls all the time"

    return at_once([first, second])


def test_all_ranks_find_all_parts(three: list[CpuOps]) -> None:
    dice = np.random.default_rng(3)
    cases = []
    for rows in [0, 1, 1, 2, 700, 5, 1, 1500]:
        edges = np.sort(dice.choice(np.arange(1, WIDTH), 2, replace=False))
        whole = dice.standard_normal((rows, WIDTH), np.float32)
        cases.append((whole, np.split(whole, edges, axis=1)))
    found = [[np.zeros_like(whole) for whole, _ in cases] for _ in three]

    def run(rank: int) -> Callable[[], None]:
        def play() -> None:
            for index, (_, parts) in enumerate(cases):
                three[rank].gather(found[rank][index], np.ascontiguousarray(parts[rank]))

        return play

    assert at_once([run(rank) for rank in range(3)]) == [None] * 3
    for outs in found:
        for out, (whole, _) in zip(outs, cases, strict=True):
            assert np.array_equal(out, whole)


def awkward_rows(columns: int) -> F32Array:
    """Rows of every size of number: groups of zeros, of the smallest numbers, of one magnitude, and one with
    infinity."""
    dice = np.random.default_rng(5)
    rows = dice.standard_normal((9, columns), np.float32)
    rows[1] *= np.exp(dice.uniform(-40, 40, columns)).astype(np.float32)
    rows[2, : columns // 2] = 0
    rows[3] *= np.float32(2.0**-119)
    rows[4] *= np.float32(2.0**-124)
    rows[5] = np.sign(rows[5])
    rows[6, 3] = -np.inf
    rows[7] = 127 - np.arange(columns, dtype=np.float32) % 254 + dice.choice([0.5, 0, -0.5], columns)
    rows[8] = np.finfo(np.float32).max
    return rows


@pytest.mark.parametrize("edges", [(128, 384), (100, 384)], ids=["whole groups", "groups that ranks share"])
@pytest.mark.parametrize("weight_format", [F32, *INTEGER_FORMATS[:2], FLAT8], ids=format_id)
def test_a_product_has_its_bits_where_its_rows_were_exchanged_as_int8(
    three: list[CpuOps], weight_format: WeightFormat, edges: tuple[int, int]
) -> None:
    columns, stored = 608, weight_format.kind.is_stored
    weight = packed(weight_format.kind, 70, columns) if stored else random_weight(70, columns, weight_format, True)
    whole = awkward_rows(columns)
    parts, firsts = np.split(whole, edges, axis=1), (0, *edges)
    found = [np.zeros_like(whole) for _ in three]
    calls = [partial(three[r].gather, found[r], np.ascontiguousarray(parts[r]), weight, firsts[r]) for r in range(3)]
    assert at_once(calls) == [None] * 3  # type: ignore[arg-type]
    expected = linear(three[0], whole, weight)
    for rank, out in enumerate(found):
        assert np.array_equal(linear(three[rank], out, weight), expected, equal_nan=True)
        group, row = weight_format.activation_columns, parts[rank].shape[1]
        rounded = group and firsts[rank] % group == 0 and (rank == 2 or row % group == 0)
        row_bytes = row + 4 * -(-row // group) if rounded else 4 * row
        assert EXCHANGES[rank].spent().sent_bytes == 64 + len(whole) * row_bytes


def test_rows_of_two_codes_are_exchanged_as_floats(three: list[CpuOps]) -> None:
    """A step with any such row exchanges all rows so. The product has its bits in both steps."""
    columns = 608
    weight, whole, edges = packed(FLAT8.kind, 70, columns), awkward_rows(columns), (128, 384)
    parts, firsts = np.split(whole, edges, axis=1), (0, *edges)
    for positions, bytes_each in ((np.arange(9, dtype=np.int32), 4), (np.arange(40, 49, dtype=np.int32), 1.125)):
        before = [EXCHANGES[rank].spent() for rank in range(3)]
        found = [np.zeros_like(whole) for _ in three]
        own = [(found[r], np.ascontiguousarray(parts[r]), weight, firsts[r], positions) for r in range(3)]
        assert at_once([partial(three[r].gather, *own[r]) for r in range(3)]) == [None] * 3  # type: ignore[arg-type]
        expected = np.zeros((9, 70), np.float32)
        three[0].linear(expected, whole, weight, positions)
        for rank, out in enumerate(found):
            made = np.zeros_like(expected)
            three[rank].linear(made, out, weight, positions)
            assert np.array_equal(made, expected, equal_nan=True)
            sent = (EXCHANGES[rank].spent() - before[rank]).sent_bytes
            assert sent == 64 + len(whole) * bytes_each * parts[rank].shape[1]


def test_what_was_spent_is_counted(two: list[CpuOps]) -> None:
    """The whole time counts in which the first rank is seen to wait for the second one."""
    slept_s: list[float] = []

    def late() -> None:
        began_s = time.monotonic()
        time.sleep(0.05)
        slept_s.append(time.monotonic() - began_s)
        two[1].gather(np.zeros((1, 8), np.float32), np.zeros((1, 4), np.float32))

    def early() -> None:
        two[0].gather(np.zeros((1, 8), np.float32), np.zeros((1, 4), np.float32))

    before = EXCHANGES[0].spent()
    assert comes_when_the_other_sleeps(early, late) == [None, None]
    spent = EXCHANGES[0].spent() - before
    assert spent.calls == 1 and spent.sent_bytes > 16
    assert spent.seconds >= spent.waited_s >= slept_s[0]


def test_values_go_from_stage_to_stage(three: list[CpuOps]) -> None:
    dice = np.random.default_rng(4)
    sent = [dice.standard_normal((rows, 257), np.float32) for rows in [3, 1, 0, 900, 2, 1]]
    last = []

    def first() -> None:
        for value in sent:
            three[0].hand_over(value.copy())

    def middle() -> None:
        for value in sent:
            got = np.zeros_like(value)
            three[1].receive(got)
            three[1].hand_over(got + 1)

    def end() -> None:
        for value in sent:
            got = np.zeros_like(value)
            three[2].receive(got)
            last.append(got)

    assert at_once([first, middle, end]) == [None] * 3
    for got, value in zip(last, sent, strict=True):
        assert np.array_equal(got, value + 1)


@pytest.mark.parametrize("over_sockets", [False, True], ids=["memory", "sockets"])
def test_a_rank_that_ends_ends_the_wait_of_the_others(over_sockets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.ranks.together.LIMIT_S", 10 * PATIENCE_S)  # no wait of this test ends by itself
    ranks = ranks_of(2, over_sockets)
    two = next(ranks)

    def early() -> None:
        two[0].gather(np.zeros((1, 8), np.float32), np.zeros((1, 4), np.float32))

    waiting, ending = comes_when_the_other_sleeps(early, EXCHANGES[1].end)
    assert isinstance(waiting, BackendError) and LOST in str(waiting) and ending is None
    with pytest.raises(BackendError, match=LOST):  # this is for good
        early()
    next(ranks, None)


@pytest.mark.parametrize("over_sockets", [False, True], ids=["memory", "sockets"])
def test_a_rank_that_does_not_come_is_waited_for_so_long(over_sockets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.ranks.together.LIMIT_S", 0.2)
    ranks = ranks_of(2, over_sockets)
    ops = next(ranks)[0]
    with pytest.raises(BackendError, match=LOST):
        ops.gather(np.zeros((1, 8), np.float32), np.zeros((1, 4), np.float32))
    next(ranks, None)


@pytest.mark.parametrize("over_sockets", [False, True], ids=["memory", "sockets"])
def test_a_stage_waits_without_a_limit_until_the_next_one_takes_its_value(
    over_sockets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.ranks.together.LIMIT_S", 0.1)
    ranks = ranks_of(2, over_sockets)
    ops, raised, full = next(ranks)[0], list[BaseException](), np.zeros((1500, WIDTH), np.float32)

    def ahead() -> None:
        try:
            for _ in range(9):  # more than fits into memory or sockets
                ops.hand_over(full)
        except BackendError as error:
            raised.append(error)

    thread = threading.Thread(target=ahead, daemon=True)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive() and not raised
    EXCHANGES[0].end()
    thread.join(PATIENCE_S)
    assert len(raised) == 1 and LOST in str(raised[0])
    next(ranks, None)


def test_a_rank_polls_for_a_short_while_and_then_sleeps(two: list[CpuOps]) -> None:
    """A rank that shares a core leaves it to the one that computes."""
    part = np.ones((1, WIDTH // 2), np.float32)

    def gather(rank: int) -> None:
        two[rank].gather(np.zeros((1, WIDTH), np.float32), part)

    assert comes_when_the_other_sleeps(partial(gather, 0), partial(gather, 1)) == [None, None]


def test_ranks_in_different_passes_do_not_meet(two: list[CpuOps]) -> None:
    EXCHANGES[0].begin(4)
    EXCHANGES[1].begin(5)
    out, part = np.zeros((1, 8), np.float32), np.zeros((1, 4), np.float32)
    raised = at_once([lambda: two[0].gather(out, part), lambda: two[1].gather(out.copy(), part.copy())])
    assert all(isinstance(error, BackendError) for error in raised)


def test_parts_that_do_not_make_the_whole_are_refused(two: list[CpuOps]) -> None:
    wide, part = np.zeros((2, 9), np.float32), np.zeros((2, 4), np.float32)
    raised = at_once([lambda: two[0].gather(wide, part), lambda: two[1].gather(wide.copy(), part.copy())])
    assert all(isinstance(error, BackendError) for error in raised)


def test_a_rank_alone_has_the_whole() -> None:
    part = np.arange(12, dtype=np.float32).reshape(2, 6)
    for ops in (ReferenceOps(), CpuOps(levels()[-1], 1)):
        out = np.zeros_like(part)
        ops.gather(out, part)
        assert np.array_equal(out, part)
    with pytest.raises(BackendError):
        ops.hand_over(part)
    with pytest.raises(BackendError):
        ops.receive(part)
    with pytest.raises(BackendError):
        ops.gather(np.zeros((2, 7), np.float32), part)


def test_untouched_memory_is_small_and_sizes_are_checked() -> None:
    level = levels()[-1]
    assert memory_bytes(level, 4, 128) < 64 << 20
    with pytest.raises(BackendError, match="could not be made"):
        Exchange.over_sockets(level, [1, 2], 2, 1.0)
