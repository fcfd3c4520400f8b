"""Flags of the sampling parameters, shared by generate and chat.

Knows: SamplingParams.
Must not know: engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from twostroke.types.sampling_params import SamplingParams

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_FLAGS: tuple[tuple[str, type, str], ...] = (
    ("--max-tokens", int, "Most tokens to make [default: up to the end of the context]."),
    ("--temperature", float, "0 takes the most likely token each time [default: the model's own, else 0]."),
    ("--top-k", int, "Choose among the k most likely tokens."),
    ("--top-p", float, "Choose among the likeliest tokens that hold this probability."),
    ("--min-p", float, "Drop tokens less likely than this share of the likeliest."),
    ("--repetition-penalty", float, "Above 1 makes tokens already seen less likely."),
    ("--presence-penalty", float, "Lowers tokens that stand in the output."),
    ("--frequency-penalty", float, "Lowers tokens by how often they stand in the output."),
    ("--seed", int, "Same seed, same output."),
)


def sampling_flags(function: Decorated) -> Decorated:
    """Add the flags; unset ones are None."""
    for flag, kind, text in reversed(_FLAGS):
        function = click.option(flag, type=kind, default=None, help=text)(function)
    return click.option("--stop", multiple=True, help="End before this text; may be given several times.")(function)


def take_sampling(values: dict[str, Any], model_defaults: Mapping[str, Any]) -> SamplingParams:
    """Pop the flags' values; the model's generation_config fills what was not given. Raises InvalidRequest."""
    asked: dict[str, Any] = {"temperature": 0.0, **model_defaults}
    for flag, _, _ in _FLAGS:
        name = flag[2:].replace("-", "_")
        value = values.pop(name)
        if value is not None:
            asked[name] = value
    stop = tuple(values.pop("stop"))
    return SamplingParams(**asked, stop=stop)


def pop_sampling(values: dict[str, Any]) -> dict[str, Any]:
    """Take the sampling flags out of a command's values, for `take_sampling` once the model is known."""
    names = [flag[2:].replace("-", "_") for flag, _, _ in _FLAGS]
    return {name: values.pop(name) for name in [*names, "stop"]}
