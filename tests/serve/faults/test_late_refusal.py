"""A request that is held and then refused gets 503 with Retry-After, like one that is refused at once."""

from __future__ import annotations

from twostroke.server.errors import fault_of, problem_of
from twostroke.types.errors import Overloaded
from twostroke.types.output import Delta
from twostroke.types.request import FinishReason


def test_a_late_refusal_is_503_with_the_time_to_come_again() -> None:
    fault = fault_of(Delta("r", 0, "", finish_reason=FinishReason.ERROR, error="Too late.", retry_after_s=2.1))
    assert isinstance(fault, Overloaded)
    problem = problem_of(fault)
    assert (problem.status, problem.code, problem.headers["retry-after"]) == (503, "overloaded", "3")


def test_other_errors_of_the_engine_stay_what_they_were() -> None:
    fault = fault_of(Delta("r", 0, "", finish_reason=FinishReason.ERROR, error="The step failed."))
    assert fault is not None and problem_of(fault).status == 500
