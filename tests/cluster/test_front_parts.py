"""What a front refuses by name instead of answering it with nothing."""

from __future__ import annotations

import pytest

from tests.cluster.test_pages_travel import served
from twostroke.server.build_front import build_front
from twostroke.server.errors import HttpProblem


def test_a_front_says_that_it_does_not_explain() -> None:
    with served("both") as (_, address), build_front("spark", {}, [address], "s", lambda text: None) as built:
        with pytest.raises(HttpProblem) as refused:
            built.parts.explain("any")
    problem = refused.value.problem
    assert problem.status == 501 and problem.code == "not_explained" and "replicas" in problem.message
