"""The headers of an answer that name the parts of its request that were left out or changed.

    X-Twostroke-Ignored-Fields: temprature (did you mean temperature?), mirostat
    X-Twostroke-Warnings: the tool web_search of the type web_search was left out; max_tokens was cut ...
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.server.api.fields.field_check import HEADER as IGNORED

WARNINGS = b"x-twostroke-warnings"


def said_of(ignored_fields: Sequence[str], warnings: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Returns the raw headers of an answer; none when nothing was left out or changed."""
    found = ((IGNORED, ", ", ignored_fields), (WARNINGS, "; ", warnings))
    return [(name, between.join(texts).encode("ascii", "replace")) for name, between, texts in found if texts]
