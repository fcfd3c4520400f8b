"""Renders deploy/helm without Helm. It knows only the few forms of Go templates that its templates use:

{{ path }}   {{ path | quote }}   {{ add path number }}   {{- ... }}
{{ range $name := path }} ... {{ end }}  {{ range $place, $name := path }}  {{ range $i := until (int path) }}
{{ if or path path }} ... {{ end }}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

ACTION = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*\}\}", re.DOTALL)
RANGE = re.compile(r"range (?:(\$\w+), )?(\$\w+) := (until \(int (\S+)\)|\S+)")


def render(template: str, values: dict[str, Any], release: str) -> str:
    """Renders a template. Raises ValueError for a form that is not one of those above, KeyError for a value that is not
    there."""
    scope = {"$": {"Values": values, "Release": {"Name": release}}}
    parts: list[str] = []
    at = 0
    for found in ACTION.finditer(template):
        parts += [template[at : found.start()] + ("" if found[2] else found[1]), found[3]]
        at = found.end()
    tokens = iter([*parts, template[at:]])
    text = "".join(_block(list(tokens), scope)[0])
    return text


def _block(tokens: list[str], scope: dict[str, Any]) -> tuple[list[str], list[str]]:
    """tokens: text and actions in turn. Returns the text up to the block's end, and the tokens after it."""
    made = [tokens[0]]
    rest = tokens[1:]
    while rest:
        action, rest = rest[0], rest[1:]
        if action == "end":
            return made, rest
        if action.startswith(("range ", "if ")):
            after: list[str] = _block(rest, scope | {"skipped": True})[1] if "skipped" in scope else rest
            if "skipped" not in scope:
                for inner in _scopes(action, scope):
                    given, after = _block(rest, inner)
                    made += [] if "skipped" in inner else given
            rest = after
        elif "skipped" not in scope:
            made.append(_value(action, scope))
        made.append(rest[0])
        rest = rest[1:]
    return made, []


def _scopes(action: str, scope: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One scope for each time that the block is rendered; one that skips it where there is none."""
    if action.startswith("if or "):
        yield scope if any(_find(path, scope) for path in action.split()[2:]) else scope | {"skipped": True}
        return
    found = RANGE.fullmatch(action)
    if found is None:
        raise ValueError(f"{action!r} is not rendered here")
    items = list(range(int(_find(found[4], scope)))) if found[4] else _find(found[3], scope)
    for place, item in enumerate(items):
        yield scope | {found[2]: item} | ({found[1]: place} if found[1] else {})
    if not items:
        yield scope | {"skipped": True}


def _value(action: str, scope: dict[str, Any]) -> str:
    path, _, filtered = action.partition(" | ")
    if path.startswith("add "):
        return str(int(_find(path.split()[1], scope)) + int(path.split()[2]))
    if filtered not in ("", "quote") or " " in path:
        raise ValueError(f"{action!r} is not rendered here")
    found = _find(path, scope)
    return json.dumps(str(found)) if filtered else str(found)


def _find(path: str, scope: dict[str, Any]) -> Any:
    first, *names = path.split(".")
    found = scope[first or "$"]
    for name in names:
        found = found[name]
    return found
