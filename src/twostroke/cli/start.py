"""The entry of the `twostroke` command: from here on Ctrl-C ends the process quietly, before the verb is imported."""

from __future__ import annotations

import sys

from twostroke.assembly.early_start import loads_a_model, read_early
from twostroke.cli.shared.garbage import put_off
from twostroke.cli.shared.interrupt import end_quietly
from twostroke.cli.shared.lean_numpy import import_lean


def run() -> None:
    """Runs the command with the arguments of this process, and ends the process."""
    end_quietly()
    words = sys.argv[1:]
    if loads_a_model(words):
        put_off()
    read_early(words)
    if loads_a_model(words):
        import_lean()
    from twostroke.cli.main import main

    main(prog_name="twostroke")
