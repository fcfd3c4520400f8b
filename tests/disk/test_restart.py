"""A long conversation goes on after the server was stopped or killed. Its prompt is read from the disk, with the bits
that a server without the disk computes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.disk.running import Served, always_read, served
from twostroke.assembly.find import find_model
from twostroke.backends.cpu import available_levels
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

SAME = ("--kv-format", "int8", "--cpu-level", available_levels()[:2][-1])
"""The same options on each machine. At a level below the best one, reading pays by the guessed speed."""
DISK = ("--kv-disk", "200MB", *SAME)
TOWNS = ("Alba", "Bern", "Cork")
STORY = " ".join(f"In year {n} the town of {TOWNS[n % 3]} built {n * 7 % 13} bridges." for n in range(60))
FIRST = [{"role": "user", "content": f"Here is a story. {STORY} Summarize it."}]


def later(text: str) -> list[dict[str, str]]:
    """The next turn of the conversation."""
    return [*FIRST, {"role": "assistant", "content": text}, {"role": "user", "content": "And what of Bern?"}]


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["text"] == other["text"] and one["bits"] == other["bits"] and one["prompt"] == other["prompt"])


def is_written(server: Served, prompt_tokens: int) -> bool:
    """Whether K and V of the whole prompt are on the disk. The last page may be missing, because it may not be full."""
    token_bytes = find_model("spark", {}).spec.kv_bytes_per_token(KVKind.INT8)
    whole_bytes = prompt_tokens // PAGE_TOKENS * PAGE_TOKENS * token_bytes
    return server.metric("twostroke_kv_disk_written_bytes") >= whole_bytes


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The first answer, and the second one as a server without the disk computes it."""
    cache = tmp_path_factory.mktemp("without")
    with served(cache, *SAME) as server:
        text = server.answer(FIRST)["text"]
    with served(cache, *SAME) as server:
        answer = server.answer(later(text))
    assert answer["cached"] == 0 and not (cache / "kv").exists()
    return text, answer


@pytest.mark.parametrize("ended", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_the_next_turn_is_read_after_a_restart(
    ended: signal.Signals, computed: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    text, wanted = computed
    with served(tmp_path, *DISK) as server:
        first = server.answer(FIRST)
        assert first["text"] == text
        if ended is signal.SIGKILL:
            server.wait(lambda: is_written(server, first["prompt"]))
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
def test_a_front_explains_what_its_replica_read(tmp_path: Path) -> None:
    path, words = always_read(tmp_path / "path"), (*DISK, "--replicas", "1")
    with served(tmp_path / "cache", *words, PYTHONPATH=path) as server:
        first = server.answer(FIRST)
        server.wait(lambda: any((tmp_path / "cache").rglob("*.kv")))  # the rest is written when it ends
    with served(tmp_path / "cache", *words, PYTHONPATH=path) as server:
        found = server.answer(later(first["text"]))
        (told,) = httpx2.get(f"{server.url}/v1/requests/{found['id']}/explain").json()["completions"]
        assert told["num_cached_tokens"] == found["cached"] >= told["num_disk_tokens"] > 0.9 * first["prompt"]
        (cause,) = (each for each in told["causes"] if each["kind"] == "read from disk")
        assert f"{told['num_disk_tokens']:,} tokens of its prompt were read from the disk in" in cause["text"]


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
    with served(tmp_path, *SAME, "--replicas", "1") as server:
        wanted = server.answer(later(text))
    assert same(found, wanted)
    assert found["cached"] > 0.9 * found["prompt"] and wanted["cached"] == 0
