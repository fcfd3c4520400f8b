"""The commands and options that the pages show exist in this program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from twostroke.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
OTHERS = ("CLI.md",)
"""Pages with options that the program itself prints."""
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.name not in OTHERS]
OF_OTHER_PROGRAMS = set(
    "--parts --gguf --seconds --peer-seconds --network --init --out --speed --part --only --count".split()
)
"""Options of tools and of containers that appear alone in a page's text."""
_CODE = re.compile(r"^```.*?$(.*?)^```$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*twostroke (.*?)(?:\s(?:[|;&>#].*|<\(.*))?$")
_OPTION = re.compile(r"--?[a-z][a-z0-9-]*")


def codes(text: str) -> Iterator[str]:
    """Lines of code, with each command as one line."""
    for block, inline in _CODE.findall(text):
        yield from (block or inline).replace("\\\n", " ").splitlines()


def options_in(text: str) -> list[str]:
    """Words that look like an option, without their values."""
    return [found[0] for word in text.split() if (found := _OPTION.match(word.strip("[]\"'")))]


@cache
def command(words: tuple[str, ...]) -> click.Command:
    """The verb of these words, and the verb below it where there is one. Raises click's error for an unknown verb."""
    found: click.Command = main
    for word in words:
        below = found.get_command(click.Context(found), word) if isinstance(found, click.Group) else None
        found = below or found
    return found


def options(own: click.Command) -> set[str]:
    """The options of a verb."""
    return {"--help", *(name for each in own.params for name in (*each.opts, *each.secondary_opts))}


def all_options(own: click.Command) -> set[str]:
    """The options of a verb and of all verbs below it."""
    context = click.Context(own)
    names = own.list_commands(context) if isinstance(own, click.Group) else []
    below = [found for name in names if isinstance(own, click.Group) and (found := own.get_command(context, name))]
    return options(own).union(*map(all_options, below))


def test_verbs_and_options_of_commands_in_pages_are_there() -> None:
    verbs, seen, wrong = set(main.list_commands(click.Context(main))), 0, []
    for page in PAGES:
        for found in filter(None, map(_COMMAND.match, codes(page.read_text()))):
            words = found[1].split()
            own = command(tuple(word for word in words[:2] if not word.startswith("-")))
            names = [name for name in options_in(found[1]) if name not in options(own)]
            names += [word for word in words[:1] if word.isalpha() and word.islower() and word not in verbs]
            seen += 1
            wrong += [f"{page.relative_to(ROOT)}: twostroke {found[1]}: {name}" for name in names]
    assert seen > 100 and wrong == []


def test_options_that_pages_name_alone_are_there() -> None:
    known = all_options(main) | OF_OTHER_PROGRAMS
    named = {(page.name, name) for page in PAGES for code in codes(page.read_text()) for name in options_in(code)
             if code.startswith("--")}  # fmt: skip
    assert len(named) > 100 and sorted(each for each in named if each[1] not in known) == []
