"""The headers of an answer that name what was left out of its request, or changed in it.

    X-Twostroke-Ignored-Fields: temprature (did you mean temperature?), mirostat
    X-Twostroke-Warnings: the tool web_search of the type web_search was left out; max_tokens was cut ...
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.server.api.field_check import HEADER as IGNORED

WARNINGS = b"x-twostroke-warnings"


def said_of(ignored_fields: Sequence[str], warnings: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Raw headers of an answer; none where there is nothing to say."""
    found = ((IGNORED, ", ", ignored_fields), (WARNINGS, "; ", warnings))
    return [(name, between.join(texts).encode("ascii", "replace")) for name, between, texts in found if texts]
