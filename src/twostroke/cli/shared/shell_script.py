"""The command line that prints a shell's script for completion (docs/guides/completion.md). docker, kubectl and others
print it by a verb `completion`, which Twostroke does not have."""

from __future__ import annotations

from collections.abc import Sequence

VERB = "completion"
SHELLS = ("bash", "zsh", "fish")


def script_command(words: Sequence[str]) -> str:
    """Returns the command line for the shell that is the first of `words`, the arguments of `completion`. Returns that
    for bash where no known shell is named."""
    shell = words[0] if words and words[0] in SHELLS else SHELLS[0]
    return f"_TWOSTROKE_COMPLETE={shell}_source twostroke"
