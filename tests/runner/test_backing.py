"""Memory is made ready ahead of the pages in use: in order, as far as asked, without a change of any byte."""

from __future__ import annotations

import mmap
import threading
import time

import numpy as np
import pytest

from tests.patience import PATIENCE_S
from twostroke.backends.cpu.huge_pages import populate
from twostroke.runner import backing as room
from twostroke.runner.backing import KvPrefault

PAGE = 4096


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "DELAY_S", 0.0)
    monkeypatch.setattr(room, "CHUNK_BYTES", 2 * PAGE)


class Seen:
    """A system that backs all requested memory, or gives up after some calls."""

    def __init__(self, most: int = 10**6) -> None:
        self.pieces: list[tuple[int, int]] = []
        self._most = most

    def __call__(self, address: int, num_bytes: int) -> bool:
        self.pieces.append((address, num_bytes))
        return len(self.pieces) <= self._most


def until(pages: int, backing: KvPrefault) -> None:
    limit_s = time.monotonic() + 20
    while backing.backed_pages < pages:
        assert time.monotonic() < limit_s, f"{backing.backed_pages} of {pages} pages"
        time.sleep(0.001)


def layers(count: int, pages: int) -> list[np.ndarray]:
    return [np.zeros((pages, PAGE), np.uint8) for _ in range(count)]


def covered(seen: Seen, layer: np.ndarray) -> int:
    """The number of pages of this layer from the first on without a hole."""
    end = layer.ctypes.data
    for address, num_bytes in sorted(seen.pieces):
        if address == end:
            end += num_bytes
    return (end - layer.ctypes.data) // PAGE


def test_a_little_ahead_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "AHEAD_BYTES", 3 * 8 * PAGE)  # eight pages of three layers
    seen, kv = Seen(), layers(3, 40)
    backing = KvPrefault(kv, seen)
    backing.start()
    until(8, backing)
    for page in range(4):
        backing.on_fresh_page(page)  # half of it is still ahead
    time.sleep(0.05)
    assert backing.backed_pages == 8
    backing.on_fresh_page(5)
    until(14, backing)
    assert backing.backed_pages == 14 and [covered(seen, layer) for layer in kv] == [14, 14, 14]
    for page in range(6, 40):
        backing.on_fresh_page(page)
    until(40, backing)
    assert [covered(seen, layer) for layer in kv] == [40, 40, 40]
    backing.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "twostroke-backing"]


def test_a_system_that_cannot_is_asked_once() -> None:
    seen = Seen(most=0)
    backing = KvPrefault(layers(2, 10), seen)
    backing.start()
    backing._thread.join(PATIENCE_S)
    backing.on_fresh_page(9)
    backing.close()
    assert len(seen.pieces) == 1 and backing.backed_pages == 0


def test_closing_before_it_began_and_twice() -> None:
    backing = KvPrefault(layers(1, 4), Seen())
    backing.close()
    backing.close()
    backing = KvPrefault(layers(1, 4), Seen())
    backing.start()
    backing.close()
    backing.close()


def resident(memory: mmap.mmap, at: int) -> int:
    """The resident bytes of the mapping that contains this address."""
    inside = False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            head = line.split()[0]
            if "-" in head and ":" not in head:
                first, last = (int(part, 16) for part in head.split("-"))
                inside = first <= at < last
            elif inside and head == "Rss:":
                return int(line.split()[1]) << 10
    raise AssertionError("no such mapping")


def test_the_system_backs_whole_pages_and_changes_nothing() -> None:
    memory = mmap.mmap(-1, 64 * PAGE)  # a shared mapping is never joined with its neighbours
    view = np.frombuffer(memory, np.uint8)
    view[20 * PAGE : 20 * PAGE + 5] = 7
    before = resident(memory, view.ctypes.data)
    assert before < 40 * PAGE
    assert populate(view.ctypes.data + 100, 50 * PAGE)
    assert resident(memory, view.ctypes.data) >= 49 * PAGE
    assert view[20 * PAGE : 20 * PAGE + 5].tolist() == [7] * 5 and int(view.sum()) == 35
    assert populate(view.ctypes.data + 1, 10)  # there is no whole page, so nothing happens
    assert not populate(view.ctypes.data, -1)
    assert not populate(0, PAGE)
    assert not populate(1 << 40, PAGE)
    del view
    memory.close()
