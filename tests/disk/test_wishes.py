"""A request keeps its pages off the disk, or keeps them there for longer: fields and headers of every API."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.disk.test_same_bits import LATER, PARAMS, PROMPT, bits, options
from tests.serve.fakes import fake_parts
from tests.serve.harness import Live, serving
from twostroke.cost.disk_price import DiskPrice
from twostroke.engine.disk import saving
from twostroke.engine.disk.files import MOST_STAY_S, DiskFiles
from twostroke.engine.disk.store import DiskStore
from twostroke.llm import LLM
from twostroke.types.output import Prompt

CHAT = "/v1/chat/completions"
HELLO: list[Any] = [{"role": "user", "content": "hi"}]
NEVER, DAY, HOUR = -1.0, 86_400.0, 3600.0


@pytest.fixture(scope="module")
def asked() -> Iterator[Live]:
    with serving(fake_parts()) as made:
        yield made


def wish(live: Live, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> float:
    """Returns the seconds for which the server wants to keep the request's pages on a disk."""
    reply = httpx2.post(live.url + path, json=body, headers=headers or {})
    assert reply.status_code == 200, reply.text
    assert "prompt_cache_retention" not in reply.headers.get("x-twostroke-ignored-fields", "")
    return float(live.parts.serving.engine.prompts[-1].disk_s)  # type: ignore[attr-defined]


BODIES = {
    CHAT: {"messages": HELLO},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 3},
    "/completion": {"prompt": "hi"},
    "/api/chat": {"model": "test-model", "messages": HELLO, "stream": False},
}


@pytest.mark.parametrize("path", BODIES)
def test_every_api_has_the_field_and_the_headers(asked: Live, path: str) -> None:
    body: dict[str, Any] = BODIES[path]
    body = {**body, "model": asked.model}
    assert wish(asked, path, body) == 0
    assert wish(asked, path, {**body, "prompt_cache_retention": "in_memory"}) == NEVER
    assert wish(asked, path, {**body, "prompt_cache_retention": "24h"}) == DAY
    assert wish(asked, path, body, {"X-Twostroke-Keep": "memory"}) == NEVER
    assert wish(asked, path, body, {"Cache-Control": "no-cache, no-store"}) == NEVER
    assert wish(asked, path, {**body, "prompt_cache_retention": "24h"}, {"Cache-Control": "no-store"}) == NEVER
    assert wish(asked, path, body, {"Cache-Control": "no-cache", "X-Twostroke-Keep": "disk"}) == 0


def test_what_is_not_stored_is_not_on_the_disk(asked: Live) -> None:
    assert wish(asked, "/v1/responses", {"input": "hi", "store": False}) == NEVER
    assert wish(asked, CHAT, {"messages": HELLO, "store": False}) == NEVER
    assert wish(asked, CHAT, {"messages": HELLO, "store": True}) == 0


@pytest.mark.parametrize("value", ["1h", 24, True, ["in_memory"]])
def test_another_retention_is_refused_by_its_name(asked: Live, value: object) -> None:
    reply = asked.post(CHAT, {"messages": HELLO, "prompt_cache_retention": value})
    assert (reply.status, reply.json["error"]["param"]) == (400, "prompt_cache_retention")


def test_a_mark_of_an_hour_has_the_prompt_stay(asked: Live) -> None:
    def marked(**mark: Any) -> dict[str, Any]:
        block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", **mark}}
        return {"messages": [{"role": "user", "content": [block]}], "max_tokens": 3}

    assert wish(asked, "/v1/messages", marked()) == 0
    assert wish(asked, "/v1/messages", marked(ttl="5m")) == 0
    assert wish(asked, "/v1/messages", marked(ttl="1h")) == HOUR
    assert wish(asked, "/v1/messages", marked(ttl="1h"), {"Cache-Control": "no-store"}) == NEVER
    assert asked.post("/v1/messages", marked(ttl="2h")).status == 400


@pytest.fixture
def _always_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskPrice, "worth_reading", lambda *_: True)
    monkeypatch.setattr(saving, "LEAST_TOKENS", 32)


@pytest.mark.usefixtures("_always_worth")
def test_the_pages_of_such_a_request_are_not_written_and_its_bits_are_the_same(tmp_path: Path) -> None:
    found = []
    for disk_s in (NEVER, 0.0):
        cache = tmp_path / str(disk_s)
        with LLM("spark", **options(cache)) as first:
            first.engine.generate([Prompt(PROMPT, PARAMS, disk_s=disk_s)])
        files = list(cache.glob("kv/*/*.kv"))
        assert bool(files) is (disk_s == 0)
        with LLM("spark", **options(cache)) as second:
            (later,) = second.engine.generate([Prompt(LATER, PARAMS, disk_s=disk_s)])
        assert (later.num_cached_tokens > 0) is (disk_s == 0)
        found.append(bits(later))
    assert found[0] == found[1]


@pytest.mark.usefixtures("_always_worth")
def test_what_stays_leaves_last_also_where_it_was_written_before(tmp_path: Path) -> None:
    with LLM("spark", **options(tmp_path)) as llm:
        llm.engine.generate([Prompt(PROMPT, PARAMS)])
    before = {path: path.stat().st_mtime for path in tmp_path.glob("kv/*/*.kv")}
    now = time.time()
    assert before and max(before.values()) <= now
    with LLM("spark", **options(tmp_path)) as llm:
        llm.engine.generate([Prompt(PROMPT, PARAMS, disk_s=HOUR)])
    assert all(path.stat().st_mtime > now + HOUR / 2 for path in before)
    with LLM("spark", **options(tmp_path)) as llm:
        llm.engine.generate([Prompt(LATER, PARAMS)])
    assert all(path.stat().st_mtime > now + HOUR / 2 for path in before), "a later hit leaves them as they are"


def test_pinned_files_are_the_last_to_leave_and_the_bound_holds(tmp_path: Path) -> None:
    told: list[str] = []
    store = DiskStore(DiskFiles(tmp_path), bytes(16), 6_000, told.append)
    store.open()
    places = [bytes([number]) * 16 for number in range(8)]
    for number, place in enumerate(places):
        store.write([(place, bytes(900))], HOUR if number == 1 else 0.0)
    left = [number for number, place in enumerate(places) if store.find(store.part_id(place)) is not None]
    assert 1 in left and 0 not in left and not told
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.kv")) <= 6_000
    for number in range(8, 16):
        store.write([(bytes([number]) * 16, bytes(900))], HOUR)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.kv")) <= 6_000
    assert not told


def test_a_time_that_a_wrong_clock_gave_does_not_stay(tmp_path: Path) -> None:
    files, path = DiskFiles(tmp_path), tmp_path / "a"
    path.write_bytes(b"x")
    far = time.time() + 40 * MOST_STAY_S
    os.utime(path, (far, far))
    files.touch("a")
    assert path.stat().st_mtime < far - MOST_STAY_S
