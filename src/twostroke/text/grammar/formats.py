"""Writes `format`, `contentEncoding` and `pattern` of strings in the form that the compiler accepts."""

from __future__ import annotations

import re
from typing import Any

from twostroke.text.grammar.pointers import shown
from twostroke.types.errors import InvalidRequest

COMPILER_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid uri".split())
_LAST = "[AQgw]", "[AEIMQUYcgkosw048]"  # the padding bits of the last character are zero
_BASE64 = f"^([A-Za-z0-9+/]{{4}})*([A-Za-z0-9+/]{_LAST[0]}==|[A-Za-z0-9+/]{{2}}{_LAST[1]}=)?$"
_BASE64_URL = f"^([A-Za-z0-9_-]{{4}})*([A-Za-z0-9_-]{_LAST[0]}(==)?|[A-Za-z0-9_-]{{2}}{_LAST[1]}=?)?$"
WITHOUT_LOOK_AROUND = {"emoji": r"^\p{Extended_Pictographic}+$"}
"""Replacement patterns for formats whose library pattern uses look-around: every text of these patterns fits the
library's pattern."""
ALSO = {
    "base64": _BASE64,
    "base64url": _BASE64_URL,
    "time": "^.{6}[0-5]",  # the compiler's own pattern would allow a leap second at any minute
    "date-time": "^.{17}[0-5]",
    "email": "^[^@]{1,64}@[^@]{1,63}$",  # the limits keep each label of the host short enough
}
"""Additional patterns that texts of a format, or of a content encoding, must fit."""
EITHER_ADDRESS = [{"format": "ipv4"}, {"format": "ipv6"}]
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")


def narrowed_string(schema: dict[str, Any], at: str) -> dict[str, Any]:
    """Returns the schema with its rules for strings in the compiler's terms. Raises InvalidRequest for look-around."""
    name, pattern = schema.get("format"), schema.get("pattern")
    encoding = schema.get("contentEncoding")
    made = dict(schema)
    known = isinstance(name, str) and name in COMPILER_FORMATS
    if not known:
        made.pop("format", None)
    if isinstance(pattern, str) and _LOOK_AROUND.search(pattern):
        del made["pattern"]
        if isinstance(name, str) and name in WITHOUT_LOOK_AROUND:
            made["pattern"] = WITHOUT_LOOK_AROUND[name]
        elif not known:
            raise InvalidRequest(
                f"The pattern at {shown(at)} uses look-around, which is not supported.",
                param="grammar",
                fix="Write the pattern without (?=...), (?!...), (?<=...) and (?<!...).",
            )
    also = {ALSO[each] for each in (name, encoding) if isinstance(each, str) and each in ALSO}
    if name == "ipvanyaddress" and "anyOf" not in made:
        made["anyOf"] = EITHER_ADDRESS
    if also:
        made["allOf"] = [*(made.get("allOf") or ()), *({"pattern": each} for each in sorted(also))]
    return made
