"""JSON bodies made into typed requests, with errors that name the field.

    @body_kind
    class TokenizeRequest(msgspec.Struct, kw_only=True): ...

    request = decode(body, TokenizeRequest)
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from twostroke.server.errors import TOO_DEEP, HttpProblem, Problem, too_many_values
from twostroke.types.decoders import json_decoder
from twostroke.types.errors import InvalidRequest

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
BODY_KINDS: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {}
"""The kinds of bodies, each with its decoder. All of them are registered before a server opens its socket."""
COUNTED_BYTES, MOST_VALUES = 4 * 1024 * 1024, 4 * 1024 * 1024
"""In bodies longer than COUNTED_BYTES, commas and brackets are counted before the body is parsed: an empty list of
three bytes takes 64 bytes of memory. Texts and pictures have few of them, so a long history is not near the bound
MOST_VALUES."""


def body_kind(kind: type[_Kind]) -> type[_Kind]:
    """Mark a class as a kind of body. Its decoder is built now, when the class is defined."""
    BODY_KINDS[kind] = json_decoder(kind)
    return kind


def decode(body: bytes, kind: type[_Kind]) -> _Kind:
    """Returns the body as a `kind`. kind: a class with the mark `body_kind`.

    Raises InvalidRequest naming the field, HttpProblem (400) for a body that is no JSON, (413) for too many values.
    """
    if len(body) > COUNTED_BYTES and sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise HttpProblem(too_many_values(MOST_VALUES))
    decoder: msgspec.json.Decoder[_Kind] = BODY_KINDS[kind]
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error)) from None
    except RecursionError:
        raise HttpProblem(TOO_DEEP) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise HttpProblem(Problem(400, f"The request's body is no JSON: {error}.", code="invalid_json")) from None


def _wrong_field(message: str) -> InvalidRequest:
    """Returns msgspec's "Expected `int`, got `str` - at `$.n`" as an error with the field's name as `param`."""
    what, _, place = message.partition(" - at ")
    if place.startswith("`key` in "):
        place, what = place.removeprefix("`key` in "), f"A key of the object: {what}"
    param = place.strip("`").removeprefix("$").lstrip(".").replace("[...]", "[]") or None
    missing = "missing required field `"
    if missing in what and param is None:
        name = what.partition(missing)[2].rstrip("`")
        return InvalidRequest(f"The field {name!r} is missing.", param=name)
    if param is None:
        return InvalidRequest(f"The request's body is wrong: {what}.")
    return InvalidRequest(f"{param} is wrong: {what}.", param=param)


def check_depth(value: Any, limit: int) -> None:
    """Raises HttpProblem (400) for a value that is nested too deep. Breadth first, so that no depth can exhaust the
    stack here or in a template."""
    level = [value]
    for _ in range(limit):
        level = [child for item in level for child in _children(item) if isinstance(child, (dict, list))]
        if not level:
            return
    raise HttpProblem(TOO_DEEP)


def _children(item: Any) -> Any:
    return item.values() if isinstance(item, dict) else item
