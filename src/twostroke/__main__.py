"""`python -m twostroke`: the command."""

from twostroke.cli.start import run

if __name__ == "__main__":
    run()
