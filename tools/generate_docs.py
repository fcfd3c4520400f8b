"""Write the generated pages of docs/, the table of rooms in docs/ARCHITECTURE.md and the table of model files.

`--check` writes nothing and fails when a page differs.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from pathlib import Path

import click
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for tools/ and tests/

from tools.pages.conversation import conversation_page
from tools.pages.decisions import decisions_page
from tools.pages.homes import homes_tables
from tools.pages.models import models_page, with_count
from tools.pages.published import readme_page
from tools.pages.quantization import quantization_page
from tools.pages.rooms import architecture_page

from twostroke.assembly.settings.option import Option
from twostroke.assembly.settings.options import ADAPTER_OPTIONS, CLUSTER_OPTIONS, ENGINE_OPTIONS, SERVER_OPTIONS
from twostroke.cli.main import VERBS, main
from twostroke.cli.shared.command import EXIT_CODES
from twostroke.ops.registry import registry

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Written by tools/generate_docs.py from the code; do not edit. -->\n\n"


def config_page() -> str:
    """Returns the page with the tables of options and of exit codes."""
    lines = [
        NOTE + "# Configuration\n",
        "Flags win over variables, variables over defaults. `twostroke config` prints each with its reason.\n",
    ]
    tables = {
        "Engine": ENGINE_OPTIONS,
        "Server": SERVER_OPTIONS,
        "Adapters": ADAPTER_OPTIONS,
        "Cluster": CLUSTER_OPTIONS,
    }
    for title, options in tables.items():
        lines += [f"## {title}\n", "| flag | variable | meaning | default |", "| --- | --- | --- | --- |"]
        lines += [_option_row(option) for option in options]
        lines.append("")
    lines += ["## Exit codes\n", "| code | when |", "| --- | --- |", "| 0 | done |", "| 1 | unexpected failure |"]
    lines += [f"| {code} | {(kind.__doc__ or '').splitlines()[0]} |" for kind, code in EXIT_CODES]
    lines.append("| 130 | interrupted |")
    return "\n".join(lines) + "\n"


def _option_row(option: Option) -> str:
    flag = f"{', '.join((option.flag, *option.also))} {option.metavar}".strip()
    return f"| `{flag}` | `TWOSTROKE_{option.name.upper()}` | {option.help} | {option.default} |"


def cli_page() -> str:
    """Returns the page with the --help text of every command, as it is printed."""
    runner = CliRunner()
    parts = [NOTE + "# Command line\n", _help(runner, [])]
    for name, (module, _) in VERBS.items():
        parts.append(_help(runner, [name]))
        command = importlib.import_module(module).command
        if isinstance(command, click.Group):
            parts += [_help(runner, [name, sub]) for sub in command.commands]
    return "\n".join(parts)


def _help(runner: CliRunner, words: list[str]) -> str:
    result = runner.invoke(main, [*words, "--help"], prog_name="twostroke", terminal_width=110)
    if result.exit_code:
        raise SystemExit(f"--help of {words} failed: {result.output}")
    return f"## `{' '.join(['twostroke', *words])}`\n\n```\n{result.output.rstrip()}\n```\n"


def ops_page() -> str:
    """Returns the page with the contract of each op, from the docstring of its module."""
    parts = [
        NOTE + "# The ops\n",
        "The instruction set of the model programs. Operands and layouts: `ops/operands.py`.\n",
    ]
    for name, op in registry().items():
        module = importlib.import_module(op.__module__)
        contract = inspect.cleandoc(module.__doc__ or "")
        cost = inspect.cleandoc(op.cost.__doc__ or "")
        parts.append(f"## {name}\n\n```\n{contract}\n```\n\nCost: {cost}\n")
    return "\n".join(parts)


PAGES = {
    "README.md": lambda: with_count(readme_page()),
    "docs/CONFIG.md": config_page,
    "docs/CLI.md": cli_page,
    "docs/OPS.md": ops_page,
    "docs/guides/conversation.md": lambda: conversation_page(NOTE),
    "docs/models.md": lambda: NOTE + models_page(),
    "docs/ARCHITECTURE.md": architecture_page,
    "docs/adr/README.md": lambda: NOTE + decisions_page(),
    "docs/quantization.md": lambda: NOTE + quantization_page(),
    "src/twostroke/models/common/homes.json": homes_tables,
}


def run() -> int:
    """Write the pages, or compare them with the files. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare instead of writing; exit 1 where they differ")
    check = parser.parse_args().check
    stale = []
    for name, make in PAGES.items():
        path, text = ROOT / name, make()
        if check and (not path.exists() or path.read_text() != text):
            stale.append(name)
        elif not check:
            path.write_text(text)
    if stale:
        print(f"{', '.join(stale)} differ from the code. Run: make docs", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(run())
