"""The texts that people read: docstrings, texts after values, comments (Python, C++, JavaScript), pages in Markdown."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

MOST_WORDS = 30
"""The most words of a sentence."""
NOTE = re.compile(r"\b\w+`?: (?:of|as|by)\b")
"""This finds a note without its noun: where only "of a step" explains `rows`, no number is named."""
TOKEN = re.compile(
    r'R"(\w*)\(.*?\)\1"'  # a raw string
    r"|(?<=[\da-fA-F])'(?=[\da-fA-F])"  # a mark between digits
    r"|//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|`(?:\\.|[^`\\])*`',
    re.DOTALL,
)
"""Comments of C++ and JavaScript, and the texts in which the same marks begin no comment."""
NAMES_A_PLACE = re.compile(r"#|namespace\b|extern\b|See\b|eslint|globals?\b")
"""A comment that ends a block or names another place has no sentence."""

UNREAD = re.compile(r"^ *```.*?^ *```[^\n]*$|<!--.*?-->|^\n(?:    [^\n]*\n)+(?=\n|\Z)", re.DOTALL | re.MULTILINE)
"""Parts of a page that have no sentences: fenced code, comments, and code that is set in after an empty line."""
ITEM = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*] |\d+\. |\||#|>))")
"""This begins a paragraph, an item of a list, a row of a table, a heading or a quotation."""


def docstrings(tree: ast.Module) -> Iterator[str]:
    """All strings that stand alone: docstrings of modules, classes and functions, and texts after values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def comments(text: str) -> list[str]:
    """The comments of Python. Consecutive lines that are comments as a whole are joined."""
    found: list[str] = []
    last = -1
    if "#" not in text:
        return found
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, number = token.string.lstrip("# "), token.start[0]
            alone = token.line.lstrip().startswith("#")
            found[-1:] = [f"{found[-1]} {line}"] if alone and number == last + 1 else [*found[-1:], line]
            last = number if alone else -1
    return found


def native_comments(text: str) -> list[str]:
    """The comments of C++ or JavaScript. Lines that are comments as a whole are joined, except at an empty one."""
    found: list[str] = []
    last = -2
    for match in TOKEN.finditer(text):
        if not match.group().startswith(("//", "/*")):
            continue
        line = re.sub(r"^(?://|/\*+)|\*/$", "", match.group()).strip()
        number = text.count("\n", 0, match.start())
        alone = not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        if alone and number == last + 1 and line and found[-1]:
            found[-1] += f" {line}"
        else:
            found.append(line)
        last = number if alone else -1
    return [each for each in found if each and not NAMES_A_PLACE.match(each)]


def sentences(text: str) -> Iterator[str]:
    """Its sentences. Lines that are set in, such as formulas and tables, are left out; an item of a list begins one."""
    for paragraph in re.split(r"\n\s*\n|\n- ", text):
        lines = [line for line in paragraph.splitlines() if not line.startswith("    ") and "   " not in line]
        yield from re.split(r"(?<=[.!?])\s+", " ".join(lines).removeprefix("- "))


def page_sentences(text: str) -> Iterator[str]:
    """The sentences of a page in Markdown, with those of lists and cells of tables.

    A span of code is one word, and so is a list of such spans. The address of a link is no word. In a cell a semicolon
    ends an entry.
    """
    for paragraph in ITEM.split(UNREAD.sub("\n", text)):
        words = " ".join(paragraph.split())
        words = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`(?:, `[^`]*`)*", "`code`", words))
        for part in re.split(r"(?<!\\)\||;", words) if words.startswith("|") else [words]:
            yield from re.split(r"(?<=[.!?])[)\"'*]*\s+", re.sub(r"^(?:[-*#>]+|\d+\.)\s+", "", part.strip()))
