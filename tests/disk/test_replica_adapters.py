"""Replicas keep pages of adapters on a disk under the adapters' contents, and not under their names."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.random_lora import write_random_lora
from tests.cluster.in_process import no_word
from tests.patience import PATIENCE_S
from tests.serve.harness import serving
from twostroke.assembly.processes.replica import ReplicaEndpoint, build_replica
from twostroke.assets import spark_path
from twostroke.cost.disk_price import DiskPrice
from twostroke.distributed.fleet.fixed_adapters import named_salt, salt_by_content
from twostroke.engine.disk import saving
from twostroke.runner.folder import read_folder
from twostroke.server.build_front import build_front

STORY = " ".join(f"In year {number} the town built {number * 7 % 13} bridges." for number in range(12))


def answer(cache: Path, adapter: Path, model: str, disk: str = "50MB") -> tuple[Any, int]:
    """The choices of a server that is started now, and the number of the prompt's tokens that were found."""
    options: dict[str, Any] = {"threads": 1, "kv_memory": "20MB", "cache": str(cache), "kv_disk": disk}
    options["adapter"] = [f"fr={adapter}"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        built = build_replica("spark", options, ReplicaEndpoint(listener, "r", "s"), no_word)
        thread = threading.Thread(target=built.replica.serve)
        with built.heart:
            thread.start()
            try:
                address = listener.getsockname()[:2]
                with build_front("spark", {}, [address], "s", no_word) as front, serving(front.parts) as live:
                    body = {"model": model, "messages": [{"role": "user", "content": STORY}], "max_tokens": 8}
                    made = live.post("/v1/chat/completions", {**body, "seed": 3, "logprobs": True}).json
            finally:
                built.replica.stop()
                thread.join(PATIENCE_S)
    return made["choices"], made["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_another_adapter_of_the_same_name_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskPrice, "worth_reading", lambda *_: True)
    monkeypatch.setattr(saving, "LEAST_TOKENS", 32)
    spec, cache = read_folder(spark_path()), tmp_path / "cache"
    adapters = [tmp_path / name for name in ("one", "other")]
    for seed, adapter in enumerate(adapters, 1):
        write_random_lora(adapter, spec, ("q_proj", "v_proj"), seed=seed, size=0.3)
    first, cached = answer(cache, adapters[0], "fr")
    assert cached == 0
    again, cached = answer(cache, adapters[0], "fr")
    assert again == first and cached > 0
    wanted, _ = answer(tmp_path / "empty", adapters[1], "fr", "off")
    other, cached = answer(cache, adapters[1], "fr")
    assert cached == 0 and other == wanted != first
    plain, cached = answer(cache, adapters[0], "spark")
    assert cached == 0 and plain != first


def test_salts() -> None:
    names, salts = ("a", "a b", "c"), ("\0adapter 1 ", "\0adapter 2 ", "\0adapter 3 ")
    assert salt_by_content(named_salt("a") + "key:x", names, salts) == "\0adapter 1 key:x"
    assert salt_by_content(named_salt("a b") + "key:x", names, salts) == "\0adapter 2 key:x"
    assert salt_by_content("key:a", names, salts) == "key:a"
    assert salt_by_content("\0adapter 3 key:", names, salts) == "\0adapter 3 key:", "as another replica asks"
