"""The entry of the `twostroke` command: Ctrl-C ends the process quietly from here on, before anything is imported."""

from __future__ import annotations

from twostroke.cli.shared.interrupt import end_quietly


def run() -> None:
    """The command with the words of this process. Ends the process."""
    end_quietly()
    from twostroke.cli.main import main

    main(prog_name="twostroke")
