"""Runs a command in the process of the test, with its output and its exit code, without the half second of a start.

tests/cli/test_process.py, test_start.py and single tests of other files start the command as users do.
"""

from __future__ import annotations

import subprocess

from click.testing import CliRunner

from twostroke.cli.main import main


def run(
    *words: str, text: str | None = None, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """text: the command's standard input, which is otherwise empty."""
    done = CliRunner().invoke(main, list(words), input=text or "", env=environ, prog_name="twostroke")
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)
