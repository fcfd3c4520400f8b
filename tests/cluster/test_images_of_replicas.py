"""A front with two replicas whose model sees images: the bits of one server, and a stream that goes on at the other
replica."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.in_process import no_word
from tests.patience import PATIENCE_S
from tests.serve.harness import Live, serving
from tests.vision.folders import picture, png, smolvlm
from tests.vision.served.test_input import chat, part, text, url_of
from twostroke.assembly.processes.replica import BuiltReplica, ReplicaEndpoint, build_replica
from twostroke.distributed.wire.frames import ReplicaRole
from twostroke.server.build import build_server
from twostroke.server.build_front import build_front
from twostroke.types.errors import ConfigError

OPTIONS: dict[str, Any] = {"weights": "f32", "context": 1024, "threads": 1, "kv_memory": "20MB"}
CONTENT = [part(url_of(picture(90, 60))), text("and"), part(url_of(picture(33, 33, 3))), text("What?")]


@contextmanager
def replica(
    folder: Path, name: str, role: ReplicaRole = "both", **options: Any
) -> Iterator[tuple[BuiltReplica, tuple[str, int]]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = ReplicaEndpoint(listener, name, "s", role)
        built = build_replica(str(folder), OPTIONS | options, endpoint, no_word)
        thread = threading.Thread(target=built.replica.serve)
        with built.heart:
            thread.start()
            try:
                yield built, listener.getsockname()[:2]
            finally:
                built.replica.stop()
                thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("seeing")
    smolvlm(made)
    return made


@pytest.fixture(scope="module")
def wanted(folder: Path) -> Any:
    with build_server(str(folder), OPTIONS) as built, serving(built.parts) as live:
        return answer(live)


def answer(live: Live, **fields: Any) -> Any:
    fields = {"max_tokens": 24, "temperature": 0.9, "seed": 3, "logprobs": True, "ignore_eos": True, **fields}
    return chat(live, CONTENT, **fields).json["choices"]


def test_bits_and_a_lost_replica(folder: Path, wanted: Any) -> None:
    with ExitStack() as stack:
        replicas = [stack.enter_context(replica(folder, name)) for name in ("a", "b")]
        addresses = [address for _, address in replicas]
        built = stack.enter_context(build_front(str(folder), {}, addresses, "s", no_word))
        live = stack.enter_context(serving(built.parts))
        assert answer(live) == wanted
        assert answer(live) == wanted
        received = [each.replica.tile_bytes for each, _ in replicas]
        assert sorted(received)[0] == 0 < sorted(received)[1], "the second turn went where the image was, and sent none"
        one = replicas[received.index(max(received))][0]
        one.replica.stop()
        assert answer(live) == wanted, "the other one asks for the pixels"
        assert {each.replica.tile_bytes for each, _ in replicas} == {max(received)}


def test_a_front_with_other_rules_is_refused(folder: Path, tmp_path: Path) -> None:
    smolvlm(tmp_path / "other", size={"longest_edge": 64})
    with replica(folder, "a") as (_, address), pytest.raises(ConfigError, match="other tiles"):
        build_front(str(tmp_path / "other"), {}, [address], "s", no_word)


def test_a_picture_is_the_same_bytes_each_time() -> None:
    """The tests above compare answers to one picture, so its bytes must not change."""
    assert png(picture(90, 60)) == png(picture(90, 60))
