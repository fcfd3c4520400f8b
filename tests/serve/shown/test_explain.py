"""GET /v1/requests/{id}/explain and `twostroke explain`, over a real socket with the embedded model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.serve.harness import Live, serving
from twostroke.cli.main import main
from twostroke.cost.explain.explanation import CauseKind
from twostroke.cost.history.record_json import read_lines
from twostroke.server.app import create_app
from twostroke.server.build import build_server
from twostroke.server.built import BuiltServer

PARTS = {
    "queue_s",
    "encode_s",
    "own_prefill_s",
    "others_prefill_s",
    "decode_s",
    "preempted_s",
    "recompute_s",
    "host_gap_s",
    "client_stall_s",
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "steps.jsonl"


@pytest.fixture(scope="module")
def spark(trace: Path) -> Iterator[Live]:
    options: dict[str, Any] = {"kv_memory": "20MB", "threads": 1, "api_key": "s3cret", "trace": str(trace)}
    with build_server("spark", options) as built, serving(built.parts) as live:
        yield live
    assert any(read_lines(trace.read_text().splitlines(), "")), "steps are recorded, however few tests of this file run"


KEY = {"authorization": "Bearer s3cret"}


def explain(*words: str) -> Result:
    return CliRunner().invoke(main, ["explain", *words], prog_name="twostroke")


def answered(live: Live, **fields: Any) -> str:
    asked = {"model": live.model, "messages": [{"role": "user", "content": "What is prefill?"}], **fields}
    reply = live.post("/v1/chat/completions", asked, **KEY)
    assert reply.status == 200
    return str(reply.json["id"])


def test_an_answer_can_be_explained_by_its_id(spark: Live) -> None:
    name = answered(spark, max_tokens=12)
    found = spark.get(f"/v1/requests/{name}/explain", **KEY).json
    assert found["id"] == name and found["object"] == "request.explanation"
    (one,) = found["completions"]
    assert one["verdict"] in ("slow to start", "slow to stream") and one["num_output_tokens"] == 12
    assert set(one["parts_s"]) == PARTS and sum(one["parts_s"].values()) == pytest.approx(one["e2e_s"])
    assert one["causes"] and one["text"].startswith(f"{name}-0: {one['verdict']}")
    assert spark.get(f"/v1/requests/{name}-0/0/explain", **KEY).json["completions"] == [one]


def test_every_choice_of_every_prompt_is_explained(spark: Live) -> None:
    asked = {"model": spark.model, "prompt": ["one", "two"], "n": 2, "max_tokens": 3, "temperature": 1}
    name = spark.post("/v1/completions", asked, **KEY).json["id"]
    found = spark.get(f"/v1/requests/{name}/explain", **KEY).json["completions"]
    assert [one["request_id"] for one in found] == [f"{name}-{i}/{j}" for i in (0, 1) for j in (0, 1)]


def test_metrics_hold_parts_and_work(spark: Live) -> None:
    answered(spark, max_tokens=8)
    text = spark.get("/metrics", **KEY).body.decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    values = {name: float(value) for name, value in lines}
    assert values['twostroke_request_part_seconds_total{part="decode"}'] > 0
    assert values["twostroke_flops_total"] > 0
    # Reading the weights is most of what small steps do.
    moved = {kind: values[f'twostroke_moved_bytes_total{{kind="{kind}"}}'] for kind in ("weights", "kv", "activations")}
    assert moved["weights"] > moved["activations"] > 0 and moved["kv"] > 0


def test_unknown_ids_and_missing_keys(spark: Live) -> None:
    reply = spark.get("/v1/requests/chatcmpl-nobody/explain", **KEY)
    assert reply.status == 404 and reply.error["code"] == "request_not_found"
    assert spark.get("/v1/requests/chatcmpl-nobody/explain").status == 401
    assert spark.call("POST", "/v1/requests/x/explain", b"", KEY).status == 405


def test_the_verb_prints_what_the_server_says(spark: Live) -> None:
    name = answered(spark, max_tokens=5)
    told = explain(name, "--url", spark.url, "--api-key", "s3cret")
    assert told.exit_code == 0 and told.output.startswith(f"{name}-0: slow to")
    as_json = explain(name, "--url", spark.url + "/v1", "--api-key", "s3cret", "--json")
    assert json.loads(as_json.output)["id"] == name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody", "--api-key", "s3cret"], "No request with the id 'nobody'"),
        (["nobody"], "--api-key"),
        (["nobody", "--url", "http://127.0.0.1:1"], "No server answers"),
        (["nobody", "--url", "ftp://127.0.0.1"], "no address of a server"),
    ],
)
def test_wrong_use_is_said_with_exit_code_two(spark: Live, words: list[str], said: str) -> None:
    told = explain(*(words if "--url" in words else [*words, "--url", spark.url]))
    assert told.exit_code == 2 and said in told.output


def test_another_server_is_no_server_of_this_kind(spark: Live) -> None:
    told = explain("x/../../../health?", "--url", spark.url, "--api-key", "s3cret")
    assert told.exit_code == 2


def test_explain_config_prints_the_settings() -> None:
    told = explain("config")
    assert told.exit_code == 0 and "max_step_tokens" in told.output


def test_a_client_that_does_not_read_is_named() -> None:
    """The transport takes a piece only after a while, as when a client leaves its buffers full.

    The while is twice the time of everything before, so that it is the longest part on any machine.
    """
    sent: list[bytes] = []
    began_s = time.monotonic()
    body = json.dumps({"model": "spark", "prompt": "one", "max_tokens": 20, "stream": True, "ignore_eos": True})

    async def ask(built: BuiltServer) -> None:
        messages = [{"type": "http.request", "body": body.encode(), "more_body": False}]

        async def receive() -> Any:
            return messages.pop() if messages else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if len(sent) == 3:  # a piece of the answer
                await asyncio.sleep(2 * (time.monotonic() - began_s))

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers, "query_string": b""}
        await built.parts.serving.engine.start()
        try:
            await create_app(built.parts)(scope, receive, send)
        finally:
            await built.parts.serving.engine.stop()

    with build_server("spark", {"kv_memory": "20MB", "threads": 1}) as built:
        asyncio.run(ask(built))
        name = json.loads(sent[1].removeprefix(b"data: "))["id"]
        (found,) = built.parts.telemetry.explain(f"{name}-0")
    kinds = [cause.kind for cause in found.causes if cause.kind is not CauseKind.BUSY]  # what else this machine does
    assert kinds[0] is CauseKind.CLIENT and found.verdict == "slow to stream"
