"""Reads values of fields as callers write them: exact types are accepted, and any other type raises one clear error.

A whole number is an int or a type that counts as one, such as numpy's integers. It is never a float, a bool or text,
because 2.5 tokens, the seed 1e19 and logprobs=True have no exact meaning. A number is an int or a float, never a bool
or text.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from twostroke.types.errors import InvalidRequest


def whole_number(name: str, value: Any) -> int:
    """Returns `value` as an int. Raises InvalidRequest where it is not a whole number."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise _wrong(name, "a whole number, such as 5", value)


def number(name: str, value: Any) -> float:
    """Returns an int unchanged, and any other real number as a float. Raises InvalidRequest where `value` is not a
    number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _wrong(name, "a number, such as 0.5", value)
    return value if isinstance(value, int) else float(value)


def truth(name: str, value: Any) -> bool:
    """Returns `value` if it is True or False. Raises InvalidRequest for any other value."""
    if not isinstance(value, bool):
        raise _wrong(name, "True or False", value)
    return value


def texts(name: str, value: Any) -> tuple[str, ...]:
    """Returns a text or a list of texts as a tuple; None gives an empty tuple. Raises InvalidRequest for other values.
    """
    if isinstance(value, str):
        return (value,)
    found = _items(name, "a text or a list of texts", value)
    if not all(isinstance(item, str) for item in found):
        raise _wrong(name, "a text or a list of texts", value)
    return found


def whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    """Returns a list of whole numbers as a tuple of ints; None gives an empty tuple. Raises InvalidRequest for other
    values."""
    return tuple(whole_number(name, item) for item in _items(name, "a list of whole numbers", value))


def numbers_by_id(name: str, value: Any) -> dict[int, float]:
    """Returns a mapping of token ids to numbers; None gives an empty mapping. Raises InvalidRequest for other values.
    """
    if value is not None and not isinstance(value, Mapping):
        raise _wrong(name, "a mapping of token ids to numbers", value)
    return {whole_number(name, token_id): number(name, bias) for token_id, bias in (value or {}).items()}


def _items(name: str, wanted: str, value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _wrong(name, wanted, value)
    return tuple(value)


def _wrong(name: str, wanted: str, value: Any) -> InvalidRequest:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return InvalidRequest(f"{name} must be {wanted}, not {shown} ({type(value).__name__}).", param=name)
