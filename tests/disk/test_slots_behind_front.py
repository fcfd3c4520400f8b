"""Slots are saved and restored through a front: one model in a replica, and one of several, with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cluster.several_models.several import Several, several
from tests.disk.running import always_read, served

pytestmark = pytest.mark.slow

LONG = "The engine reads prompts in chunks and decodes tokens one after the other. " * 40
MORE = " And then?"
DISK = ("--kv-disk", "100MB")


class Slots:
    """The slots of one model of a server. model: "" where there is one."""

    def __init__(self, url: str, model: str = "") -> None:
        self.url, self.query = url, {"model": model} if model else {}

    def complete(self, prompt: str, number: int) -> Any:
        body = {"prompt": prompt, "n_predict": 8, "temperature": 0, "return_tokens": True, "id_slot": number}
        return self._post("/completion", {**body, **self.query})

    def act(self, action: str, number: int, name: str) -> Any:
        return self._post(f"/slots/{number}?action={action}", {"filename": name, **self.query})

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        made = httpx2.post(self.url + path, json=body, timeout=120)
        assert made.status_code == 200, made.text
        return made.json()


def saved(slots: Slots, cache: Path) -> tuple[Any, Any, Any]:
    """The first answer, what saving it said, and what came after it. Its pages are on the disk when it is saved."""
    first = slots.complete(LONG, 2)
    told = slots.act("save", 2, "talk.bin")
    assert told["n_saved"] == first["tokens_evaluated"] + len(first["tokens"])
    assert any(cache.rglob("*.kv")) and any(cache.rglob("talk.bin.json"))
    return first, told, slots.complete(LONG + first["content"] + MORE, 2)


def check_restored(slots: Slots, first: Any, told: Any, later: Any) -> None:
    """The pages come from the disk, and the conversation goes on as it did before."""
    back = slots.act("restore", 5, "talk.bin")
    assert (back["id_slot"], back["n_restored"]) == (5, told["n_saved"]) and back["n_read"] > 0
    again = slots.complete(LONG + first["content"] + MORE, 5)
    assert again["tokens"] == later["tokens"]
    assert again["tokens_cached"] > first["tokens_evaluated"] // 2


def test_a_slot_of_a_replica_comes_back_after_a_restart(tmp_path: Path) -> None:
    path = always_read(tmp_path / "path")
    words = (*DISK, "--replicas", "1")
    with served(tmp_path / "cache", *words, PYTHONPATH=path) as server:
        found = saved(Slots(server.url), tmp_path / "cache")
    with served(tmp_path / "cache", *words, PYTHONPATH=path) as server:
        check_restored(Slots(server.url), *found)


def test_a_slot_of_one_model_of_several_comes_back_after_a_swap(tmp_path: Path) -> None:
    """The model that saved it leaves for another one, and is loaded again for the restore."""
    words = ("spark", "spark-draft", *DISK, "--cache", str(tmp_path / "cache"), "--kv-memory", "32MB")
    with several(tmp_path / "log", *words, PYTHONPATH=always_read(tmp_path / "path")) as server:
        slots = Slots(server.url, "spark")
        found = saved(slots, tmp_path / "cache")
        _leaves(server, "spark")
        assert Slots(server.url, "spark-draft").complete("Hello", 2)["stop"]
        check_restored(slots, *found)


def _leaves(server: Several, name: str) -> None:
    server.http.post("/models/unload", json={"model": name})
    server.wait_for(name, "unloaded")
