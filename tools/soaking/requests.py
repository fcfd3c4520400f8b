"""The requests of a soak: ordinary ones that have one right answer each, malformed ones, hostile ones."""

from __future__ import annotations

import json
import random
from typing import Any

NUM_ORDINARY = 32
SENTENCES = (
    "Prefill reads the whole prompt at once. ",
    "Decode makes one token after another. ",
    "The cache keeps keys and values. ",
    "A page holds sixteen tokens. ",
    "What is a batch? ",
)


def ordinary(dice: random.Random) -> list[dict[str, Any]]:
    """Returns completions with a seed: short and long prompts, some with a common beginning, penalties, stops or
    siblings."""
    made = []
    for number in range(NUM_ORDINARY):
        prompt = "".join(dice.choice(SENTENCES) for _ in range(dice.choice([1, 2, 6, 20])))
        body: dict[str, Any] = {
            "model": "spark",
            "prompt": prompt,
            "max_tokens": dice.choice([1, 8, 24, 60]),
            "seed": number,
            "temperature": dice.choice([0, 0.8, 1.5]),
            "logprobs": dice.choice([0, 2, 5]),
            "n": dice.choice([1, 1, 1, 3]),
            "ignore_eos": dice.random() < 0.5,
        }
        if dice.random() < 0.2:
            body["stop"] = [" the", "."]
        if dice.random() < 0.2:
            body["repetition_penalty"] = 1.3
        made.append(body)
    return made


def malformed(dice: random.Random) -> tuple[str, bytes, set[int]]:
    """Returns (path, body, allowed statuses) of a malformed request."""
    good = {"model": "spark", "prompt": "x", "max_tokens": 4}
    return dice.choice(
        [
            ("/v1/completions", b"", {400}),
            ("/v1/completions", b"{", {400}),
            ("/v1/completions", b"[" * 5000 + b"]" * 5000, {400}),
            ("/v1/completions", b"\xff\xfe\x00", {400}),
            ("/v1/completions", json.dumps(good | {"n": 10**9}).encode(), {400}),
            ("/v1/completions", json.dumps(good | {"max_tokens": -7}).encode(), {400}),
            ("/v1/completions", json.dumps(good | {"temperature": "hot"}).encode(), {400}),
            ("/v1/completions", json.dumps(good | {"prompt": [1, "x"]}).encode(), {400}),
            ("/v1/completions", json.dumps(good | {"prompt": [2**40]}).encode(), {400}),
            ("/v1/completions", json.dumps(good | {"prompt": ""}).encode(), {400}),
            ("/v1/completions", json.dumps(good | {"logit_bias": {"x": 1}}).encode(), {400}),
            ("/v1/completions", json.dumps(good | {"model": "../../etc/passwd"}).encode(), {404}),
            ("/v1/chat/completions", json.dumps({"model": "spark", "messages": []}).encode(), {400}),
            ("/v1/chat/completions", json.dumps({"model": "spark", "messages": [{"role": 1}]}).encode(), {400}),
            ("/v1/nothing", b"{}", {404}),
        ]
    )


def hostile_heads(dice: random.Random) -> bytes:
    """Returns hostile bytes for a plain socket."""
    return dice.choice(
        [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET / HTTP/1.1\r\nHost: a/?x=\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"f" * 18
            + b"\r\n",
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: lo",
            b"",
        ]
    )
