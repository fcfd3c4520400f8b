"""llama.cpp's slots: the last answer of a slot is saved under a name, and comes back after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serve.fakes import fake_parts
from tests.serve.harness import Live, Reply, serving
from twostroke.cost.disk_price import DiskPrice
from twostroke.engine.disk import saving
from twostroke.engine.disk.contract import DiskCounts
from twostroke.server.build import build_server
from twostroke.server.slots import kept
from twostroke.server.slots.kept import Slots, SlotTokens
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

LONG = "The engine reads prompts in chunks and decodes tokens one after the other. " * 12


@pytest.fixture(autouse=True)
def _always_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskPrice, "worth_reading", lambda *_: True)
    monkeypatch.setattr(saving, "LEAST_TOKENS", 32)


@contextmanager
def spark(cache: Path, **changes: Any) -> Iterator[Live]:
    options = {"kv_memory": "20MB", "threads": 1, "kv_disk": "100MB", "cache": str(cache), **changes}
    with build_server("spark", options) as built, serving(built.parts) as live:
        yield live


def complete(live: Live, prompt: str, **fields: Any) -> Any:
    body = {"prompt": prompt, "n_predict": 8, "temperature": 0, "return_tokens": True, **fields}
    made = live.post("/completion", body)
    assert made.status == 200, made.body
    return made.json


def act(live: Live, action: str, number: int = 0, **body: Any) -> Reply:
    return live.post(f"/slots/{number}?action={action}", body)


def test_a_saved_slot_comes_back_after_a_restart_with_the_same_bits(tmp_path: Path) -> None:
    with spark(tmp_path) as live:
        first = complete(live, LONG)
        saved = act(live, "save", filename="talk.bin")
        assert saved.status == 200, saved.body
        told = saved.json
        assert (told["id_slot"], told["filename"]) == (0, "talk.bin")
        assert told["n_saved"] == first["tokens_evaluated"] + len(first["tokens"])
        assert set(told["timings"]) == {"save_ms"}
        later = complete(live, LONG + first["content"] + " And then?")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".kv" for path in files)
    assert {oct(path.stat().st_mode & 0o777) for path in files if "kv" in path.parts} <= {"0o600"}
    with spark(tmp_path) as live:
        told = act(live, "restore", 3, filename="talk.bin").json
        assert (told["id_slot"], told["n_restored"]) == (3, saved.json["n_saved"]) and told["n_read"] > 0
        again = complete(live, LONG + first["content"] + " And then?")
        assert again["tokens"] == later["tokens"]
        assert again["tokens_cached"] > first["tokens_evaluated"] // 2
        assert act(live, "erase", 3).json == {"id_slot": 3, "n_erased": saved.json["n_saved"]}
        assert act(live, "erase", 3).json == {"id_slot": 3, "n_erased": 0}


def test_pages_that_are_gone_are_computed(tmp_path: Path) -> None:
    with spark(tmp_path) as live:
        first = complete(live, LONG)
        assert act(live, "save", filename="talk").status == 200
    for path in tmp_path.rglob("*.kv"):
        path.write_bytes(b"damaged")
    with spark(tmp_path) as live:
        told = act(live, "restore", filename="talk").json
        assert told["n_read"] == 0 and told["n_restored"] > 0
        again = complete(live, LONG)
        assert again["tokens"] == first["tokens"] and again["tokens_cached"] > 0


def test_a_request_chooses_its_slot_and_a_slot_has_the_last_answer(tmp_path: Path) -> None:
    with spark(tmp_path) as live:
        one, two = complete(live, "one", id_slot=1), complete(live, "two and more", id_slot=2)
        assert (one["id_slot"], two["id_slot"]) == (1, 2)
        chat = {"messages": [{"role": "user", "content": "three"}], "model": "spark", "max_tokens": 3, "id_slot": 5}
        assert live.post("/v1/chat/completions", chat).status == 200
        sizes = {number: act(live, "save", number, filename=f"s{number}").json["n_saved"] for number in (1, 2, 5)}
        assert sizes[1] == one["tokens_evaluated"] + len(one["tokens"])
        assert sizes[2] == two["tokens_evaluated"] + len(two["tokens"])
        complete(live, "one", id_slot=1, n_predict=2)
        assert act(live, "save", 1, filename="s1").json["n_saved"] == one["tokens_evaluated"] + 2
        memory_only = {"X-Twostroke-Keep": "memory"}
        body = json.dumps({"prompt": "secret", "n_predict": 2, "id_slot": 2}).encode()
        assert live.call("POST", "/completion", body, memory_only).status == 200
        refused = act(live, "save", 2, filename="s2")
        assert (refused.status, refused.json["error"]["code"]) == (400, "slot_is_empty")


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".x", "x" * 129, "a\0b", "é"])
def test_a_filename_is_never_a_path(tmp_path: Path, name: str) -> None:
    with spark(tmp_path) as live:
        complete(live, "hello")
        before = {path for path in tmp_path.rglob("*") if path.suffix == ".json"}
        for action in ("save", "restore"):
            assert act(live, action, filename=name).status == 400
        assert {path for path in tmp_path.rglob("*") if path.suffix == ".json"} == before


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with spark(tmp_path) as live:
        assert act(live, "save", filename="x").json["error"]["code"] == "slot_is_empty"
        assert act(live, "restore", filename="x").status == 404
        assert act(live, "copy", filename="x").json["error"]["param"] == "action"
        assert act(live, "save").status == 400  # there is no filename
        assert live.post("/slots/a?action=erase", {}).status == 404
        complete(live, "hello")
        assert act(live, "save", filename="x").status == 200
        (record,) = (tmp_path / "kv" / "slots").rglob("x.json")
        other = {**json.loads(record.read_text()), "model": "other"}
        record.write_text(json.dumps(other))
        assert act(live, "restore", filename="x").json["error"]["code"] == "other_model"
        record.write_text("{")
        assert act(live, "restore", filename="x").status == 404


def test_each_key_has_its_own_slots(tmp_path: Path) -> None:
    with spark(tmp_path, api_key="aaa,bbb") as live:
        one, two = {"authorization": "Bearer aaa"}, {"authorization": "Bearer bbb"}
        body = json.dumps({"prompt": "mine", "n_predict": 2}).encode()
        assert live.call("POST", "/completion", body, one).status == 200
        name = b'{"filename": "x"}'
        assert live.call("POST", "/slots/0?action=save", name, two).status == 400
        assert live.call("POST", "/slots/0?action=save", name, one).status == 200
        assert live.call("POST", "/slots/0?action=restore", name, two).status == 404
        assert live.call("POST", "/slots/0?action=restore", name, one).status == 200


def test_without_a_disk_it_is_said_how_to_get_one() -> None:
    with serving(fake_parts()) as live:
        refused = act(live, "save", filename="x")
        assert refused.status == 501 and "--kv-disk" in refused.json["error"]["message"]


class NoDisk:
    """A disk that does nothing."""

    counts, settled = DiskCounts(), True


def test_slots_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_HELD", 2)
    slots = Slots(tmp_path, NoDisk())
    for number in range(3):
        slots.hold("", number, SlotTokens((1, 2), ":", None))
    assert slots.held("", 0) is None and slots.held("", 2) is not None
    pooled = Prompt((1, 2, 3), SamplingParams(), cache_salt="label:", disk_s=-1.0)
    slots.hold("label", 7, SlotTokens((1,), "label:", None))
    slots.ended(7, pooled, (4,))
    assert slots.held("label", 7) is None
