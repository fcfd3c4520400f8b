"""The names of what the hub of these tests has, and what it was asked."""

from __future__ import annotations

from tests.weights.fake_hub import FakeHub

OLD, NEW = "a" * 40, "b" * 40
MODEL = "acme/tiny"
SHARD = "model-00001-of-00002.safetensors"


def first_bytes(hub: FakeHub, name: str) -> list[int]:
    """The beginnings of the ranges that were asked for in a file."""
    return [int(entry.split("bytes=")[1].split("-")[0]) for entry in hub.ranges if entry.startswith(name)]
