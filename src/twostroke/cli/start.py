"""The entry of the `twostroke` command. From here on Ctrl-C ends the process quietly, before anything else is imported.
"""

from __future__ import annotations

import sys

from twostroke.cli.shared.interrupt import end_quietly


def run() -> None:
    """Runs the command with the arguments of this process, and ends the process."""
    end_quietly()
    from twostroke.assembly.early.early_start import loads_a_model, read_early
    from twostroke.assembly.settings.env import without_blas_threads
    from twostroke.cli.shared.garbage import put_off

    words = sys.argv[1:]
    if loads_a_model(words):
        without_blas_threads()  # before NumPy is imported
        put_off()
    read_early(words)
    from twostroke.cli.main import main

    main(prog_name="twostroke")
