"""`python -m twostroke`: the command.

Knows: where the command is.
Must not know: verbs.
"""

from twostroke.cli.main import main

if __name__ == "__main__":
    main(prog_name="twostroke")
