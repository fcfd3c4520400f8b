"""msgspec builds types in one place (types/reading/decoders.py) when modules are imported, and never while bytes are
read."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.laws.test_house import nodes_of, tree_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "twostroke"
HOME = PACKAGE / "types" / "reading" / "decoders.py"
MODULES = sorted(path for folder in (PACKAGE, ROOT / "tools") for path in folder.rglob("*.py") if path != HOME)
BUILDERS = {"json_decoder", "msgpack_decoder"}
BODY_HOME = "twostroke.server.gate.decode"
OF_MSGSPEC = ("msgspec", "json", "msgpack", "yaml", "toml")


def faults(tree: ast.AST) -> Iterator[str]:
    """Places that build a type while the program runs, or outside the one place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "msgspec":
            for alias in node.names:
                if alias.name in ("convert", "decode", "Decoder"):
                    yield f"{node.lineno}: imports msgspec's {alias.name}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            built = [call for call in _calls(node) if _name(call) in BUILDERS]
            yield from (f"{call.lineno}: {_name(call)} inside a function" for call in built)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value).split(".")[-1]
            typed = len(node.args) > 1 or any(keyword.arg in ("type", None) for keyword in node.keywords)
            if owner in OF_MSGSPEC and (
                node.func.attr in ("convert", "Decoder") or (node.func.attr == "decode" and typed)
            ):
                yield f"{node.lineno}: {ast.unparse(node.func)}"


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def unmarked(nodes: Iterable[ast.AST], module: str) -> Iterator[str]:
    """Kinds as which a module of the server reads bodies, and that lack the mark `body_kind`."""
    home = importlib.import_module(BODY_HOME)
    names = vars(importlib.import_module(module))
    for node in nodes:
        if isinstance(node, ast.Call) and _name(node) == "decode" and names.get("decode") is home.decode:
            kind = ast.unparse(node.args[1])
            if names.get(kind) not in home.BODY_KINDS:
                yield f"{node.lineno}: {kind}"


def test_no_type_is_built_while_bytes_are_read() -> None:
    assert len(MODULES) > 150
    found = [f"{path.relative_to(ROOT)}:{fault}" for path in MODULES for fault in faults(tree_of(path))]
    # The mark of a class calls the builder when the class is made, so the class is inside a function here.
    assert [f for f in found if not f.startswith("src/twostroke/server/gate/decode.py:")] == []
    assert len(found) == 1


def test_each_kind_of_body_that_is_read_has_its_decoder() -> None:
    read = 0
    for path in sorted((PACKAGE / "server").rglob("*.py")):
        nodes = list(nodes_of(path))
        uses = [n for n in nodes if isinstance(n, ast.Call) and _name(n) == "decode"]
        if uses:
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            assert list(unmarked(nodes, module)) == [], path
            read += len(uses)
    assert read >= 10


@pytest.mark.parametrize(
    "code",
    [
        "msgspec.json.decode(body, type=Kind)",
        "msgspec.json.decode(body, **options)",
        "json.decode(body, type=Kind)",
        "msgspec.msgpack.decode(body, type=Kind)",
        "msgspec.convert(found, Kind)",
        "msgspec.convert(found, type=Kind)",
        "msgspec.json.Decoder(Kind)",
        "decoder = msgspec.msgpack.Decoder(Kind)",
        "from msgspec import convert",
        "from msgspec.json import decode as read",
        "def f():\n    return json_decoder(Kind)",
        "class A:\n    async def f(self):\n        self.d = msgpack_decoder(Kind)",
        "make = lambda kind: json_decoder(kind)",
    ],
)
def test_the_law_catches(code: str) -> None:
    assert list(faults(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "_chunks = json_decoder(Chunk)",
        "msgspec.json.decode(problem)",
        "data.decode('utf-8')",
        "tokenizer.decode(ids, True)",
        "def f():\n    return _chunks.decode(data)",
    ],
)
def test_the_law_lets_through(code: str) -> None:
    assert not list(faults(ast.parse(code)))


def test_the_law_catches_a_kind_without_its_mark() -> None:
    calls = ast.walk(ast.parse("decode(body, FieldCheck)"))
    assert list(unmarked(calls, "twostroke.server.api.schema")) == ["1: FieldCheck"]
