"""`twostroke explain` and its route on a front with replicas, as on a single server, with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from tests.cluster.running import Running, serving
from tests.patience import PATIENCE_S
from twostroke.cli.explain import command as explain_command
from twostroke.cost.explain.behind_front import FRONT_PARTS
from twostroke.cost.explain.causes import LEAST_SHARE
from twostroke.types.recorded.parts import TimeParts

pytestmark = pytest.mark.slow

ASKED: Any = [{"role": "user", "content": "Write three sentences about prefill and decode."}]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(2) as made:
        yield made


def explained(running: Running, answer_id: str) -> list[dict[str, Any]]:
    found = httpx2.get(f"{running.url}/v1/requests/{answer_id}/explain", timeout=PATIENCE_S)
    assert found.status_code == 200, found.text
    completions: list[dict[str, Any]] = found.json()["completions"]
    for each in completions:
        assert set(each["parts_s"]) == {*TimeParts().by_name(), *FRONT_PARTS}
        assert sum(each["parts_s"].values()) == pytest.approx(each["e2e_s"], abs=1e-6)
        assert all(seconds >= -1e-6 for seconds in each["parts_s"].values())
    return completions


def test_route_and_verb_answer_as_those_of_a_single_server(running: Running) -> None:
    answer = running.client.completions.create(
        model="spark", prompt="The cache", n=2, max_tokens=24, temperature=1.0, extra_body={"ignore_eos": True}
    )
    told = explained(running, answer.id)
    assert [each["request_id"] for each in told] == [f"{answer.id}-0/0", f"{answer.id}-0/1"]
    for each in told:
        # A front measures the times at which it receives tokens. If one message brings every token, there is no time
        # between them.
        assert each["num_output_tokens"] == 24 and each["parts_s"]["decode_s"] >= 0
        assert each["parts_s"]["own_prefill_s"] > 0 and each["parts_s"]["lost_s"] == 0
        assert "Computed at replica-" in each["summary"] and "cost model" in each["text"]
    shown = CliRunner().invoke(explain_command, [answer.id, "--url", running.url])
    assert shown.exit_code == 0, shown.output
    assert shown.output.strip() == "\n\n".join(each["text"] for each in told)


def test_a_request_that_a_stop_string_ended_is_explained(running: Running) -> None:
    ask: dict[str, Any] = {"model": "spark", "messages": ASKED, "max_tokens": 60, "temperature": 0}
    whole = running.client.chat.completions.create(**ask).choices[0].message.content or ""
    answer = running.client.chat.completions.create(**ask, stop=whole[12:16])
    assert answer.choices[0].message.content == whole[: whole.index(whole[12:16])]
    (told,) = explained(running, answer.id)
    assert told["parts_s"]["lost_s"] == 0 and told["parts_s"]["own_prefill_s"] > 0


def test_an_unknown_request_is_not_found(running: Running) -> None:
    found = httpx2.get(f"{running.url}/v1/requests/none/explain")
    assert found.status_code == 404 and found.json()["error"]["code"] == "request_not_found"


@pytest.mark.slow
def test_after_a_kill_both_replicas_have_their_part(running: Running) -> None:
    """One sentence names the replica that was killed, and the other replica reports what it did."""
    for _ in range(10):  # answers may be complete before the kill
        answer_id, killed = asked_and_killed(running)
        found = explained(running, answer_id)
        moved = [told for told in found if told["parts_s"]["lost_s"] > LEAST_SHARE * told["e2e_s"]]  # else not named
        if moved:
            break
    assert moved, "no kill came while an answer was computed"
    for told in moved:
        assert told["parts_s"]["resume_s"] > 0 and told["parts_s"]["decode_s"] >= 0
        lost = [cause["text"] for cause in told["causes"] if cause["kind"] == "lost replica"]
        assert lost == [f"{killed} has ended since, and its record of this time with it"]
        assert f"Computed at {killed}, then at replica-" in told["summary"]


def asked_and_killed(running: Running) -> tuple[str, str]:
    """Returns the id of the answer, and the replica that was killed after its first piece."""
    with (
        ThreadPoolExecutor(1) as thread,
        running.client.completions.create(
            model="spark", prompt="The cache", n=4, max_tokens=500, stream=True, extra_body={"ignore_eos": True}
        ) as stream,
    ):
        answer_id = next(stream).id
        killed = thread.submit(running.kill_one_that_computes)
        for _ in stream:
            pass
        return answer_id, killed.result()
