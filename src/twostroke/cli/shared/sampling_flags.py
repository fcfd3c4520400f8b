"""Flags of the sampling parameters, shared by `generate` and `chat`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import MAX_SCHEMA_BYTES, Grammar
from twostroke.types.reading.unreadable import fix_unreadable, why_unreadable
from twostroke.types.sampling.open_values import filled
from twostroke.types.sampling.sampling_params import SamplingParams

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_FLAGS: tuple[tuple[str, type, str], ...] = (
    ("--max-tokens", int, "Most tokens to make [default: up to the end of the context]."),
    ("--temperature", float, "0 takes the most likely token each time [default: the model's own, else 0]."),
    ("--top-k", int, "Choose among the k most likely tokens."),
    ("--top-p", float, "Choose among the likeliest tokens that hold this probability."),
    ("--min-p", float, "Drop tokens less likely than this share of the likeliest [default: 0.1 without any limit]."),
    ("--typical-p", float, "Choose among tokens whose surprise is near the expected one, up to this probability."),
    ("--top-n-sigma", float, "Choose among logits within this many standard deviations of the largest."),
    ("--dynatemp-range", float, "Let the temperature follow the entropy, up to this far from --temperature."),
    ("--dynatemp-exponent", float, "The shape of that curve [default: 1]."),
    ("--xtc-probability", float, "How often all likely tokens but the least likely of them are left out."),
    ("--xtc-threshold", float, "The least probability of a likely token there [default: 0.1]."),
    ("--dry-multiplier", float, "Above 0 makes tokens that would continue a repetition less likely."),
    ("--dry-base", float, "What a longer repetition multiplies that penalty by [default: 1.75]."),
    ("--dry-allowed-length", int, "Shorter repetitions than this have no penalty [default: 2]."),
    ("--dry-penalty-last-n", int, "How many tokens are looked at for repetitions [default: 64; -1: all]."),
    ("--mirostat", int, "1 or 2 holds the surprise of the output near --mirostat-tau, in place of the other sets."),
    ("--mirostat-tau", float, "That surprise, in bits [default: 5]."),
    ("--mirostat-eta", float, "How fast mirostat corrects itself [default: 0.1]."),
    ("--adaptive-target", float, "Prefer tokens near this probability; below 0 is off."),
    ("--adaptive-decay", float, "How much of the probabilities so far counts there [default: 0.9]."),
    ("--repetition-penalty", float, "Above 1 makes tokens already seen less likely."),
    ("--presence-penalty", float, "Lowers tokens that stand in the output."),
    ("--frequency-penalty", float, "Lowers tokens by how often they stand in the output."),
    ("--seed", int, "Same seed, same output."),
)


_LIST_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("--dry-sequence-breakers", "TEXT", "A repetition stops at a token with this text; may be given several times."),
    ("--samplers", "NAME", "Run these samplers alone, in this order; may be given several times."),
)
_GRAMMAR_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("--json-schema", "FILE", "Answer in JSON that fits the schema in this file."),
    ("--regex", "PATTERN", "Answer with text that matches this pattern."),
)


def sampling_flags(function: Decorated) -> Decorated:
    """Adds the flags. The value of a flag that is not given is None."""
    for flag, kind, text in reversed(_FLAGS):
        function = click.option(flag, type=kind, default=None, help=text)(function)
    for flag, metavar, text in reversed(_LIST_FLAGS):
        function = click.option(flag, metavar=metavar, multiple=True, help=text)(function)
    for flag, metavar, text in reversed(_GRAMMAR_FLAGS):
        function = click.option(flag, metavar=metavar, default=None, help=text)(function)
    return click.option("--stop", multiple=True, help="End before this text; may be given several times.")(function)


def take_sampling(values: dict[str, Any], model_defaults: Mapping[str, Any]) -> SamplingParams:
    """Takes the values of the flags out of `values`. The model's generation_config gives the values that are missing.
    Raises InvalidRequest."""
    asked: dict[str, Any] = {}
    for flag, _, _ in (*_FLAGS, *_LIST_FLAGS):
        name = flag[2:].replace("-", "_")
        value = values.pop(name)
        if value not in (None, ()):
            asked[name] = value
    stop = tuple(values.pop("stop"))
    values_of = {"temperature": 0.0, **filled(asked, model_defaults)}
    return SamplingParams(**values_of, stop=stop, grammar=_grammar(values.pop("json_schema"), values.pop("regex")))


def _grammar(schema_file: str | None, pattern: str | None) -> Grammar | None:
    """Returns the grammar of the answer; None without one. Raises InvalidRequest."""
    if schema_file is not None and pattern is not None:
        raise InvalidRequest("--json-schema and --regex both ask for a form of the answer.", fix="Give one.")
    if pattern is not None:
        return Grammar.regex(pattern)
    if schema_file is None:
        return None
    try:
        with open(schema_file, encoding="utf-8") as file:
            return Grammar.json_schema(file.read(MAX_SCHEMA_BYTES + 1))
    except (OSError, UnicodeDecodeError) as error:
        fix = fix_unreadable(error, "Give a file with a JSON schema.")
        what = f"--json-schema {schema_file} cannot be read."
        raise InvalidRequest(what, why=why_unreadable(error), fix=fix) from None


def pop_sampling(values: dict[str, Any]) -> dict[str, Any]:
    """Takes the sampling flags out of a command's values, for `take_sampling` once the model is known."""
    names = [flag[2:].replace("-", "_") for flag, _, _ in (*_FLAGS, *_LIST_FLAGS)]
    return {name: values.pop(name) for name in [*names, "json_schema", "regex", "stop"]}
