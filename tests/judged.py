"""Stored answers of judges, by a digest of the question. Where an answer is stored, no judge is imported.

A judge (torch, transformers) takes seconds to import and more to load published weights. Its answer follows from the
weights, the question and the judge's version alone. So it is stored in tests/judged.json with a digest of these. Where
one of them has changed, the judge is asked again. A daily run always asks it and compares. After a change, write the
file anew:

    .venv/bin/python -m pytest --write-judged tests/real/test_greedy.py tests/real/test_logits.py
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.tiers import TIER

FILE = Path(__file__).with_name("judged.json")
JUDGES = ("torch", "transformers")
REMEDY = "If the judge is right: pytest --write-judged, and say in the commit why."


def digest_of(facts: Iterable[object]) -> str:
    """A hash of these facts and of the judges' versions. A path means the content of its file."""
    versions = [f"{name} {metadata.version(name)}" for name in JUDGES]
    digest = hashlib.sha256()
    for fact in (*versions, *facts):
        content = fact.read_bytes() if isinstance(fact, Path) else repr(fact).encode()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:32]


def said(
    name: str, facts: Iterable[object], ask: Callable[[], Any], same: Callable[[Any, Any], bool] = operator.eq
) -> Any:
    """The stored answer to this question, or the judge's own. name: the name of the question; facts: everything that
    decides the answer. ask: asks the judge, whose answer can be JSON. same: whether a stored answer and a new one are
    equal."""
    kept, of = _stored(), digest_of(facts)
    is_kept = kept.get(name, {}).get("of") == of
    if is_kept and not TIER.daily and not TIER.writes:
        return kept[name]["said"]
    found = json.loads(json.dumps(ask()))
    if TIER.writes:
        _write({**kept, name: {"of": of, "said": found}})
    elif is_kept:
        assert same(kept[name]["said"], found), f"the judge says something else than is stored of {name}. {REMEDY}"
    return found


def _stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.is_file() else {}
    return found


def _write(entries: dict[str, Any]) -> None:
    """Writes one line for each entry, in the order of their names."""
    lines = [f"{json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
