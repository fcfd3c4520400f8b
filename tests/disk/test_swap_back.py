"""A model leaves for another one and comes back: K and V of its conversation are read from the disk, not computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.several_models.several import Several, several
from tests.disk.running import always_read
from tests.disk.test_restart import FIRST, SAME, later

pytestmark = pytest.mark.slow

TWO = ("spark", "spark-draft", "--max-loaded", "1", "--kv-memory", "64MB", *SAME)


def answer(server: Several, model: str, messages: list[dict[str, str]]) -> dict[str, Any]:
    """One answer of a conversation: its text and bits, its prompt's tokens, and those of them that were cached."""
    body = {"model": model, "messages": messages, "max_tokens": 24, "temperature": 1.0, "seed": 3, "logprobs": True}
    made = server.http.post("/v1/chat/completions", json=body).json()
    usage = made["usage"]
    return {
        "bits": made["choices"][0]["logprobs"]["content"],
        "text": made["choices"][0]["message"]["content"],
        "prompt": usage["prompt_tokens"],
        "cached": usage["prompt_tokens_details"]["cached_tokens"],
    }


def talk(server: Several) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last two answers of spark; between them it leaves for the other model."""
    first = answer(server, "spark", FIRST)
    _leaves(server, "spark")  # without a wait for its turn
    assert answer(server, "spark-draft", [{"role": "user", "content": "Hello"}])["prompt"]
    assert server.states() == {"spark": "unloaded", "spark-draft": "loaded"}
    _leaves(server, "spark-draft")
    return first, answer(server, "spark", later(first["text"]))


def _leaves(server: Several, name: str) -> None:
    server.http.post("/models/unload", json={"model": name})
    server.wait_for(name, "unloaded")


def test_a_swap_back_reads_the_conversation_from_the_disk(tmp_path: Path) -> None:
    with several(tmp_path / "without.log", *TWO, "--cache", str(tmp_path / "without")) as server:
        first, wanted = talk(server)
    assert wanted["cached"] == 0, "without the disk the prompt is computed again"
    words = (*TWO, "--cache", str(tmp_path / "cache"), "--kv-disk", "200MB")
    with several(tmp_path / "log", *words, PYTHONPATH=always_read(tmp_path / "path")) as server:
        again, found = talk(server)
    names = ("bits", "text", "prompt")
    assert [again[name] for name in names] == [first[name] for name in names]
    assert [found[name] for name in names] == [wanted[name] for name in names]
    assert found["cached"] > 0.9 * found["prompt"], "a new process has them from the disk alone"
