"""The entry of the `twostroke` command: Ctrl-C ends the process quietly from here on, before the verb is imported."""

from __future__ import annotations

import sys

from twostroke.assembly.early_start import read_early
from twostroke.cli.shared.interrupt import end_quietly


def run() -> None:
    """The command with the words of this process. Ends the process."""
    end_quietly()
    read_early(sys.argv[1:])
    from twostroke.cli.main import main

    main(prog_name="twostroke")
