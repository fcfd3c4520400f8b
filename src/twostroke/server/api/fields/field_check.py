"""Unknown fields of a request: named in a header and in the log, and refused when they look misspelt.

check = FieldCheck(strict=False)
check.ignored(body, ChatRequest) == ("temprature (did you mean temperature?)",)
"""

from __future__ import annotations

import difflib
import logging
import re
from functools import lru_cache

import msgspec

from twostroke.server.gate.decode import decoded
from twostroke.types.errors import InvalidRequest
from twostroke.types.reading.decoders import json_decoder

log = logging.getLogger("twostroke.server")
HEADER = b"x-twostroke-ignored-fields"
MAX_NAMED = 16
MAX_LOOKED_AT = 64
MAX_NAME_CHARACTERS = 64
MAX_LOGGED_NAMES = 256
_CLOSE = 0.82
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
HINTS = frozenset(
    "user metadata client_metadata store service_tier safety_identifier prediction "
    "prompt_cache_key prompt_cache_retention prompt_cache_options cache_prompt id_slot slot_id "
    "request_id guided_decoding_backend".split()
)
"""Known fields that do not change the answer; the answer's header does not name them."""
_MEANT = {
    "max_new_tokens": "max_tokens",
    "max_length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "num_predict": "max_tokens",
    "num_beams": "best_of",
    "stop_sequences": "stop",
    "stopping_strings": "stop",
    "system_prompt": "system",
}
"""Maps names of fields that other servers have to this server's names, for the error about an unknown field. Names that
are spelled nearly alike are found without this table."""
_ELSEWHERE = frozenset(
    "top_a tfs_z n_keep n_probs n_discard min_keep "
    "length_penalty early_stopping prompt_template return_token_ids return_tokens_as_token_ids".split()
)
"""Fields of other servers whose names are similar to one of ours, but whose meaning is different."""

Kind = type[msgspec.Struct]
_fields = json_decoder(dict[str, msgspec.Raw])


class FieldCheck:
    """Finds fields of requests that this server does not know. They are ignored and named in the log and in a response
    header. strict: True refuses a request with a field whose name is nearly that of a known one. Any thread may call
    the methods."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._logged: set[str] = set()

    def ignored(self, body: bytes, kind: Kind) -> tuple[str, ...]:
        """Returns the fields without a meaning here, each with the field that was probably meant. The texts are safe to
        write into a header.

        A body that is no object has no such fields: the decoder refuses it. Raises InvalidRequest for a misspelt field
        when `strict`.
        """
        unknown = _unknown(body, kind)
        shown: list[str] = []
        for name in unknown[:MAX_LOOKED_AT]:
            near = nearest(name, kind)
            if near is not None and self._strict:
                raise InvalidRequest(
                    f"There is no field {name[:MAX_NAME_CHARACTERS]!r}.",
                    param=name[:MAX_NAME_CHARACTERS],
                    code="unknown_field",
                    fix=f"Did you mean {near}?",
                )
            shown.append(_safe(name) + (f" (did you mean {near}?)" if near else ""))
        if len(unknown) > MAX_LOOKED_AT and self._strict:
            raise InvalidRequest(f"The request has {len(unknown):,} fields that are not known.", code="unknown_field")
        self._log(shown)
        left_out = len(unknown) - MAX_NAMED
        return (*shown[:MAX_NAMED], *([f"and {left_out} more"] if left_out > 0 else []))

    def _log(self, shown: list[str]) -> None:
        """Logs a warning for each unknown field, once in the life of the server."""
        for name in shown:
            if name not in self._logged and len(self._logged) < MAX_LOGGED_NAMES:
                self._logged.add(name)
                log.warning("a field of a request is not known and was ignored: %s", name)


@lru_cache(maxsize=1024)
def nearest(name: str, kind: Kind) -> str | None:
    """Returns the field of this kind of request that was probably meant; None when there is none."""
    known = kind.__struct_fields__
    if len(name) > MAX_NAME_CHARACTERS:
        return None
    plain = _plain(name)
    same = next((each for each in known if _plain(each) == plain), None)
    meant = _MEANT.get(name)
    if same is not None or meant in known:
        return same or meant
    if name in _ELSEWHERE:
        return None
    found = difflib.get_close_matches(name.lower(), known, 1, _CLOSE)
    return found[0] if found else None


def _unknown(body: bytes, kind: Kind) -> list[str]:
    """Returns the unknown fields in the order of the body. A field that is null asks for nothing."""
    try:
        fields = decoded(body, _fields)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []
    known = HINTS.union(kind.__struct_fields__)
    return [name for name, value in fields.items() if name not in known and bytes(value) != b"null"]


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _safe(name: str) -> str:
    return _UNSAFE.sub("?", name[:MAX_NAME_CHARACTERS]) or "?"
