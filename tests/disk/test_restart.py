"""A long conversation goes on after the server was stopped or killed: its prompt is read from the disk, with the bits
that a server without the disk computes."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.disk.running import Served, served

DISK = ("--kv-disk", "200MB")
TOWNS = ("Alba", "Bern", "Cork")
STORY = " ".join(f"In year {n} the town of {TOWNS[n % 3]} built {n * 7 % 13} bridges." for n in range(60))
FIRST = [{"role": "user", "content": f"Here is a story. {STORY} Summarize it."}]


def later(text: str) -> list[dict[str, str]]:
    """The next turn of the conversation."""
    return [*FIRST, {"role": "assistant", "content": text}, {"role": "user", "content": "And what of Bern?"}]


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["text"] == other["text"] and one["bits"] == other["bits"] and one["prompt"] == other["prompt"])


def written(server: Served) -> bool:
    """Whether pages were written, and no more came for a while."""
    before = server.metric("twostroke_kv_disk_written_bytes")
    time.sleep(0.5)
    return before > 1_000_000 and server.metric("twostroke_kv_disk_written_bytes") == before


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The first answer, and the second one as a server without the disk computes it."""
    cache = tmp_path_factory.mktemp("without")
    with served(cache) as server:
        text = server.answer(FIRST)["text"]
    with served(cache) as server:
        answer = server.answer(later(text))
    assert answer["cached"] == 0 and not (cache / "kv").exists()
    return text, answer


@pytest.mark.parametrize("ended", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_the_next_turn_is_read_after_a_restart(
    ended: signal.Signals, computed: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    text, wanted = computed
    with served(tmp_path, *DISK) as server:
        assert server.answer(FIRST)["text"] == text
        if ended is signal.SIGKILL:
            server.wait(lambda: written(server))
        server.end(ended)
    with served(tmp_path, *DISK) as server:
        found = server.answer(later(text))
        assert same(found, wanted)
        assert found["cached"] > 0.9 * found["prompt"]
        assert server.metric("twostroke_kv_disk_read_tokens") > 0.9 * found["prompt"]
        (told,) = httpx2.get(f"{server.url}/v1/requests/{found['id']}/explain").json()["completions"]
        assert told["num_disk_tokens"] > 0.9 * found["prompt"]
        (cause,) = (each for each in told["causes"] if each["kind"] == "read from disk")
        assert "tokens of its prompt were read from the disk in" in cause["text"]
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "kv").rglob("*")} == {0}


@pytest.mark.slow
def test_two_servers_use_one_folder(computed: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    text, wanted = computed
    with served(tmp_path, *DISK) as one, served(tmp_path, *DISK) as other:
        assert one.answer(FIRST)["text"] == other.answer(FIRST)["text"] == text
        assert same(one.answer(later(text)), wanted) and same(other.answer(later(text)), wanted)
    with served(tmp_path, *DISK) as third:
        found = third.answer(later(text))
        assert same(found, wanted) and found["cached"] > 0.9 * found["prompt"]
        assert third.metric("twostroke_kv_disk_damaged") == 0


@pytest.mark.daily
@pytest.mark.slow
def test_replicas_read_what_replicas_wrote(tmp_path: Path) -> None:
    words = (*DISK, "--replicas", "1")
    with served(tmp_path, *words) as server:
        text = server.answer(FIRST)["text"]
    with served(tmp_path, *words) as server:
        found = server.answer(later(text))
    with served(tmp_path, "--replicas", "1") as server:
        wanted = server.answer(later(text))
    assert same(found, wanted)
    assert found["cached"] > 0.9 * found["prompt"] and wanted["cached"] == 0
