"""Reads `options` of Ollama's requests: options of the answer, options of the model's loading, and unknown names.

Every option is used, refused, or named in the answer's header: none is dropped silently. When an option is absent, the
model's own generation_config decides, as on all routes: a model answers the same on all of them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from twostroke.server.api.schema import in_words_of
from twostroke.types.errors import InvalidRequest
from twostroke.types.sampling.sampler_fields import DEFAULTS, FIELD_NAMES

OF_THE_LOAD = frozenset(
    "num_keep num_batch num_gpu main_gpu use_mmap num_thread low_vram numa f16_kv use_mlock vocab_only logits_all "
    "embedding_only num_gqa draft_num_predict".split()
)
"""Options that set how a model is loaded and change no answer; some clients always send them."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tfs_z": (1, 1.0),
    "penalize_newline": (True, False),
}
"""Options that are not implemented here, with the values that mean no change."""


class ReadOptions(Struct, frozen=True):
    """Ollama's `options` as they were read. fields: the fields of our own request, by name. ignored: the names for the
    answer's header. context: the most tokens of prompt and answer; None for the served length."""

    fields: Mapping[str, Any]
    ignored: tuple[str, ...] = ()
    context: int | None = None


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, float) and value % 1):
        raise InvalidRequest(f"options.{name} must be a whole number.", param=f"options.{name}")
    return int(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequest(f"options.{name} must be a number.", param=f"options.{name}")
    return float(value)


def _texts(name: str, value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise InvalidRequest(f"options.{name} must be a text or a list of texts.", param=f"options.{name}")
    return [each for each in texts if each]


_READERS: dict[type, Callable[[str, Any], Any]] = {int: _whole, float: _number}
_READ: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "temperature": ("temperature", _number),
    "top_k": ("top_k", _whole),
    "top_p": ("top_p", _number),
    "min_p": ("min_p", _number),
    "seed": ("seed", _whole),
    "num_predict": ("n_predict", _whole),
    "stop": ("stop", _texts),
    "repeat_penalty": ("repeat_penalty", _number),
    "repeat_last_n": ("repeat_last_n", _whole),
    "presence_penalty": ("presence_penalty", _number),
    "frequency_penalty": ("frequency_penalty", _number),
    **{name: (name, _READERS.get(type(DEFAULTS[name]), _texts)) for name in FIELD_NAMES},
}


def read_options(options: Mapping[str, Any] | None) -> ReadOptions:
    """Reads Ollama's `options`. Raises InvalidRequest, naming the option, for a wrong value, and for an option that is
    not implemented here if its value would change the answer."""
    fields: dict[str, Any] = {}
    ignored: list[str] = []
    context = None
    for name, value in (options or {}).items():
        if value is None:
            continue
        if name in _READ:
            ours, read = _READ[name]
            fields[ours] = read(name, value)
        elif name == "num_ctx":
            context = max(0, _whole(name, value)) or None
        elif name in NEUTRAL:
            ignored.append(_neutral(name, value))
        else:
            ignored.append(_unknown(name))
    if fields.get("n_predict", 1) <= 0:  # Ollama knows no limit of 0 tokens
        fields["n_predict"] = -1
    return ReadOptions(fields, tuple(ignored), context)


_IN_OPTIONS = {ours: f"options.{name}" for name, (ours, _) in _READ.items()}


@contextmanager
def clients_words() -> Iterator[None]:
    """Lets an error about an option have the name that the client wrote: num_predict, where we have n_predict."""
    try:
        yield
    except InvalidRequest as error:
        raise in_words_of(error, _IN_OPTIONS) from None


def _neutral(name: str, value: Any) -> str:
    if value not in NEUTRAL[name]:
        raise InvalidRequest(
            f"options.{name} is not supported.",
            param=f"options.{name}",
            why="This engine does not compute that sampler.",
            fix="Leave it out.",
            code="unsupported_value",
        )
    return f"options.{name}"


def _unknown(name: str) -> str:
    safe = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "_.-") else "?" for sign in name[:64])
    if name in OF_THE_LOAD:
        return f"options.{safe}"
    near = difflib.get_close_matches(name.lower(), [*_READ, "num_ctx"], 1, 0.8)
    return f"options.{safe}" + (f" (did you mean {near[0]}?)" if near else "")
