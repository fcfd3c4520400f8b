"""Stored answers of judges, by a digest of the question. Where an answer is stored, no judge is imported.

A judge (torch, transformers) takes seconds to import and more to load published weights. Its answer follows from the
weights, the question and the judge's version alone. So it is stored in tests/judged.json with a digest of these. Where
one of them has changed, the judge is asked again. A daily run always asks it and compares. After a change, write the
file anew:

    .venv/bin/python -m pytest --write-judged tests/real/test_greedy.py tests/real/test_logits.py
"""

from __future__ import annotations

import ast
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


def code_of(path: Path) -> str:
    """A Python file without its docstrings, its comment lines and its empty lines, as a fact: these decide nothing."""
    text = path.read_text()
    lines: list[str | None] = list(text.splitlines())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = None
    return "\n".join(line for line in lines if line is not None and line.strip() and line.strip()[0] != "#")


def said(
    name: str,
    facts: Iterable[object],
    ask: Callable[[], Any],
    same: Callable[[Any, Any], bool] = operator.eq,
    file: Path | None = None,
) -> Any:
    """The stored answer to this question, or the judge's own. name: the question's name. facts: all that decides the
    answer. ask: asks the judge, whose answer can be JSON. same: whether a stored answer and a new one are alike.
    file: where it is stored, FILE unless it is given."""
    file = file or FILE
    kept, of = _stored(file), digest_of(facts)
    is_kept = kept.get(name, {}).get("of") == of
    if is_kept and not TIER.daily and not TIER.writes:
        return kept[name]["said"]
    found = json.loads(json.dumps(ask()))
    if TIER.writes:
        _write(file, {**kept, name: {"of": of, "said": found}})
    elif is_kept:
        assert same(kept[name]["said"], found), f"the judge says something else than is stored of {name}. {REMEDY}"
    return found


def is_current(name: str, facts: Iterable[object], file: Path) -> bool:
    """Whether what is stored answers this question: otherwise each run asks the judge."""
    return bool(_stored(file).get(name, {}).get("of") == digest_of(facts))


def _stored(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def _write(file: Path, entries: dict[str, Any]) -> None:
    """One line for each entry, in the order of their names. An answer that is an object of objects has one line for
    each of these, in its own order."""
    lines = [f"{json.dumps(name)}: {_text(entries[name])}" for name in sorted(entries)]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _text(entry: dict[str, Any]) -> str:
    answer = entry["said"]
    if not isinstance(answer, dict) or not answer or not all(isinstance(each, dict) for each in answer.values()):
        return json.dumps(entry)
    inner = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in answer.items())
    return f'{{"of": {json.dumps(entry["of"])}, "said": {{\n{inner}}}}}'
