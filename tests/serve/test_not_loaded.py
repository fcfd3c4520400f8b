"""What a client gets that waited for a model: a status, a code, and the reason in words."""

from __future__ import annotations

import pytest

from twostroke.cli.shared.command import exit_code
from twostroke.distributed.cluster.front import FrontStepper
from twostroke.distributed.cluster.link import secret_key
from twostroke.server.errors import fault_of, problem_of
from twostroke.types.errors import ModelUnavailable
from twostroke.types.not_loaded import not_loaded, unavailable_of
from twostroke.types.output import Delta
from twostroke.types.request import FinishReason


@pytest.mark.parametrize(
    ("code", "retry_s", "headers"),
    [
        ("model_failed", 4.2, {"retry-after": "5", "x-twostroke-model-state": "failed"}),
        ("insufficient_memory", None, {"x-should-retry": "false"}),
        ("model_not_loaded", 0.0, {"retry-after": "1"}),
    ],
)
def test_the_reason_travels_in_the_text_of_the_end(code: str, retry_s: float | None, headers: dict[str, str]) -> None:
    text = not_loaded(code, "The file (a): is no model.")
    delta = Delta("r", 0, "", finish_reason=FinishReason.ERROR, error=text, retry_after_s=retry_s)
    fault = fault_of(delta)
    assert isinstance(fault, ModelUnavailable)
    problem = problem_of(fault)
    assert (problem.status, problem.code, dict(problem.headers)) == (503, code, headers)
    assert problem.message.endswith("The file (a): is no model.")
    assert exit_code(fault) == 7


def test_other_texts_are_other_faults() -> None:
    assert unavailable_of("The model is not loaded", None) is None
    assert unavailable_of("", 1.0) is None
    assert not_loaded("deferred", "x") == not_loaded("model_not_loaded", "x")


def test_a_front_calls_again_when_its_addresses_change() -> None:
    """What it knew of replicas that have ended does not apply to the next one."""
    addresses: list[tuple[str, int]] = []
    now = [0.0]
    front = FrontStepper(addresses, 16, secret_key("s"), lambda: now[0], lambda error: None, lambda text: None)
    front.poll()
    addresses.append(("127.0.0.1", 1))
    front.look_soon()
    front.poll()
    assert [where for where, _ in front.states()] == addresses
    addresses.clear()
    front.forget_facts()
    now[0] = 100.0
    front.poll()
    front.poll()
    assert front.facts is None
    front.close()
