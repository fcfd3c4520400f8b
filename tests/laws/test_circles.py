"""No module of the package depends on itself, where lazy imports, LazyModule and imports for type checkers count."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.laws.test_house import MODULES, SOURCE, nodes_of


def name_of(path: object) -> str:
    """The name of a module: twostroke.text.talk for .../twostroke/text/talk/__init__.py."""
    words = str(path).removeprefix(str(SOURCE.parent) + "/").removesuffix(".py").split("/")
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def imports(nodes: list[ast.AST], known: set[str]) -> Iterator[str]:
    """The modules of the package that a module imports, at any place in it."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield inner if inner in known else node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "LazyModule":
            yield from (each.value for each in node.args if isinstance(each, ast.Constant))


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of two or more modules that depend on each other. Modules without imports and modules without importers
    are removed repeatedly, and the groups are left."""
    left = {name: set(needs) for name, needs in graph.items()}
    while True:
        needed = set().union(*left.values()) if left else set()
        ends = {name for name, needs in left.items() if not needs or name not in needed}
        if not ends:
            return [sorted(left)] if left else []
        left = {name: needs - ends for name, needs in left.items() if name not in ends}


def test_no_module_needs_itself() -> None:
    known = {name_of(path): path for path in MODULES}
    graph = {name: (set(imports(nodes_of(path), set(known))) & set(known)) - {name} for name, path in known.items()}
    assert sum(map(len, graph.values())) > 5000
    assert circles(graph) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    lazy = ast.parse("if TYPE_CHECKING:\n    from x import y\nelse:\n    y = LazyModule('x.y')\ndef f():\n    import z")
    assert set(imports(list(ast.walk(lazy)), {"x.y"})) == {"x.y", "z"}
