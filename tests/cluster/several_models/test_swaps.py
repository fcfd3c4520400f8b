"""Swaps of two models with real processes: no process, port, descriptor, thread or memory is left by any of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.several_models.several import Several, several
from tests.serve.harness import wait_until
from tests.tiers import TIER
from twostroke.assets import spark_path

pytestmark = pytest.mark.slow

PRESSED, ASKED = 2, 48 if TIER.daily else 16
"""Swaps because there is room for one; and swaps by a user's word, which wait for no turn."""
WARM = 4
"""Swaps after which a server has everything that it keeps: heaps have grown, modules are imported."""
MOST_POOLED = 3
"""Threads that pools of the server may start later, when calls meet that did not meet before. One thread of each swap
would be more."""
MOST_GROWTH = 4 << 20
"""Bytes by which the server's own memory may grow in all later swaps: a page of each would be more."""


class Held(NamedTuple):
    """What a server's process holds."""

    children: int
    descriptors: int
    listening: int
    threads: int
    shared: int
    own_bytes: int


def held(server: Several) -> Held:
    home = Path(f"/proc/{server.process.pid}")
    children = [pid for path in home.glob("task/*/children") for pid in path.read_text().split()]
    links = [os.readlink(path) for path in (home / "fd").iterdir() if path.is_symlink()]
    state = dict(line.split(":", 1) for line in (home / "status").read_text().splitlines())
    return Held(
        len(children),
        len(links),
        len(_listening() & {link for link in links if link.startswith("socket:")}),
        int(state["Threads"]),
        len(list(Path("/dev/shm").iterdir())),
        int(state["RssAnon"].split()[0]) * 1024,
    )


def _listening() -> set[str]:
    """All sockets of this machine that listen."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Several]:
    shutil.copytree(spark_path(), tmp_path / "second")
    words = ("spark", str(tmp_path / "second"), "--max-loaded", "1", "--kv-memory", "20MB")
    with several(tmp_path / "log", *words) as made:
        yield made


def test_swaps_leave_nothing(server: Several) -> None:
    names = ("spark", "second")
    texts = set()

    def swap(number: int, *, asked: bool) -> None:
        coming, leaving = names[number % 2], names[(number + 1) % 2]
        if asked:
            server.http.post("/models/unload", json={"model": leaving})
            server.wait_for(leaving, "unloaded")
        texts.add(server.chat(coming))
        assert server.states() == {coming: "loaded", leaving: "unloaded"}

    for number in range(1, PRESSED + 1):
        swap(number, asked=False)
    for number in range(PRESSED + 1, PRESSED + WARM + 1):
        swap(number, asked=True)
    _settled(server)
    before = held(server)
    assert before.listening == 1 and before.children >= 1  # a model; processes that read grammars stay
    for number in range(PRESSED + WARM + 1, PRESSED + WARM + ASKED + 1):
        swap(number, asked=True)
    _settled(server)
    after = held(server)
    assert after._replace(threads=0, own_bytes=0) == before._replace(threads=0, own_bytes=0)
    assert after.threads - before.threads <= MOST_POOLED < ASKED, (before, after)
    assert after.own_bytes - before.own_bytes < MOST_GROWTH, (before, after)
    assert len(texts) == 1, "both have the same weights"
    pid = server.process_of(names[(PRESSED + WARM + ASKED) % 2])
    server.process.terminate()
    server.process.wait(60)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the last model ends with its server")


def _settled(server: Several) -> None:
    """Until connections of the clients are closed, and threads of ended work have ended."""
    server.http.close()
    server.http = type(server.http)(base_url=server.url, timeout=60)
    last: list[Held] = []

    def same() -> bool:
        last.append(held(server))
        return len(last) > 5 and len({each[:5] for each in last[-5:]}) == 1

    wait_until(same, "the same picture five times")
