"""Requests and texts for the tests of speculate."""

from collections.abc import Sequence

from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams


def request(name: str = "a", prompt: Sequence[int] = (), salt: str = "", speculate: str | None = None) -> Request:
    return Request(name, name, tuple(prompt), SamplingParams(), 0, 10_000, frozenset(), 0.0, salt, speculate=speculate)
