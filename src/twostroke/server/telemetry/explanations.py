"""The body of GET /v1/requests/{id}/explain."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from twostroke.cost.explain.explanation import Explanation, words


def explanation_of(asked: str, explain: Callable[[str], Sequence[Explanation]]) -> dict[str, Any] | None:
    """Returns how the time of a request was spent, for each of its completions; None when the id is unknown. asked: an
    answer's id (for all of its prompts), or the id of one completion."""
    found = list(explain(asked)) or [
        each
        for group in itertools.takewhile(bool, (explain(f"{asked}-{place}") for place in itertools.count()))
        for each in group
    ]
    if not found:
        return None
    completions = [{**each.as_json(), "text": words(each)} for each in found]
    return {"id": asked, "object": "request.explanation", "completions": completions}
