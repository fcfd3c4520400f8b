"""JSON bodies made into typed requests, with errors that name the field.

Some programs write JSON a little differently, and their users cannot change it. So a byte order mark at the beginning
is skipped. Half of a surrogate pair, where a text was cut within a character, is read as U+FFFD. A whole number may be
written as 8.0.

    @body_kind
    class TokenizeRequest(msgspec.Struct, kw_only=True): ...

    request = decode(body, TokenizeRequest)
"""

from __future__ import annotations

import codecs
import re
from typing import Any, TypeVar

import msgspec

from twostroke.server.errors import TOO_DEEP, HttpProblem, Problem, too_many_values
from twostroke.types.errors import InvalidRequest
from twostroke.types.reading.decoders import json_decoder

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
_Read = TypeVar("_Read")
BODY_KINDS: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {}
"""The kinds of bodies, each with its decoder. All of them are registered before a server opens its socket."""
COUNTED_BYTES, MOST_VALUES = 4 * 1024 * 1024, 4 * 1024 * 1024
"""A body longer than COUNTED_BYTES is refused before it is parsed if it has more than MOST_VALUES commas and opening
brackets. An empty list of three bytes takes 64 bytes of memory. Texts and pictures have few of these characters, so a
long history is far below the bound."""
_fields = json_decoder(dict[str, msgspec.Raw])
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_REPLACEMENT = rb"\ufffd"
_FLOAT = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_MOST_EXACT = 2**53


def body_kind(kind: type[_Kind]) -> type[_Kind]:
    """Marks a class as a kind of request body. Its decoder is built now, when the class is defined."""
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
        try:
            return decoded(body, decoder)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
            return decoded(_with_whole_numbers(body), decoder)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error)) from None
    except RecursionError:
        raise HttpProblem(TOO_DEEP) from None
    except (msgspec.MsgspecError, ValueError) as error:
        what = f"The request's body is no JSON: {error}." if body else "The request has no body."
        raise HttpProblem(Problem(400, what, code="invalid_json")) from None


def decoded(body: bytes, decoder: msgspec.json.Decoder[_Read]) -> _Read:
    """Returns what the decoder reads. Half of a surrogate pair is read as U+FFFD. Raises as the decoder does."""
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        halves = _half_pairs(body)
        if not halves:
            raise
        whole = bytearray(body)
        for place in halves:
            whole[place : place + len(_REPLACEMENT)] = _REPLACEMENT
        return decoder.decode(bytes(whole))


def _half_pairs(body: bytes) -> list[int]:
    """Returns the indices of escaped surrogates that have no other half. Takes time linear in the body. The interpreter
    can switch to another thread after each surrogate, so a long body does not hold up others."""
    found: list[int] = []
    high = -1  # the place of a first half whose second half may come
    for each in _SURROGATE.finditer(body):
        place = each.start()
        if _is_escaped(body, place):
            continue
        is_low = body[place + 3] in b"cdefCDEF"
        if is_low and high >= 0 and place == high + len(_REPLACEMENT):
            high = -1
            continue
        if high >= 0:
            found.append(high)
        if is_low:
            found.append(place)
        high = -1 if is_low else place
    return [*found, high] if high >= 0 else found


def _is_escaped(body: bytes, place: int) -> bool:
    """Returns True where an odd number of backslashes is in front of the place."""
    first = place
    while first and body[first - 1] == ord("\\"):
        first -= 1
    return (place - first) % 2 == 1


def _with_whole_numbers(body: bytes) -> bytes:
    """Returns the body with whole numbers where fields are numbers such as 8.0 or 1e2. Some languages know one kind of
    number only. Numbers within other values stay as they are."""
    fields = decoded(body, _fields)
    return msgspec.json.encode({name: _whole(value) for name, value in fields.items()})


def _whole(value: msgspec.Raw) -> msgspec.Raw:
    text = bytes(value)
    if not _FLOAT.fullmatch(text):
        return value
    number = float(text)
    return msgspec.Raw(b"%d" % number) if number.is_integer() and abs(number) < _MOST_EXACT else value


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
    """Raises HttpProblem (400) for a value that is nested too deep. The search is breadth first, so that no depth can
    exhaust the stack here or in a template."""
    level = [value]
    for _ in range(limit):
        level = [child for item in level for child in _children(item) if isinstance(child, (dict, list))]
        if not level:
            return
    raise HttpProblem(TOO_DEEP)


def _children(item: Any) -> Any:
    return item.values() if isinstance(item, dict) else item
