"""`python -m twostroke`: the command.

Knows: where the command is.
Must not know: verbs.
"""

from twostroke.cli.start import run

if __name__ == "__main__":
    run()
