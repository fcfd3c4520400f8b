"""Run tests, or the digests of logits, with a level of AVX-512 that this CPU lacks: emulated by AVX2 (avx512.py).

    python -m tests.native.emulated.wide avx512|amx ARGUMENTS OF PYTEST...
    python -m tests.native.emulated.wide avx512|amx digests [--write]

Use it for a change of kernels if you have no machine with AVX-512. It compiles for some minutes, once. Nothing here
measures how fast a level is.
"""

from __future__ import annotations

import sys

import pytest

from tests.native.emulated.avx512 import AMX, LEVEL
from tests.native.emulated.emulated import EmulatedLevel
from twostroke.backends.cpu import available_levels, library


def have(level: EmulatedLevel) -> None:
    """From now on this process finds the emulated library in place of the level's own, and takes it for one that its
    CPU runs."""
    path, runs, path_of = level.built(), library.runnable_levels(), library.library_path
    library.library_path = lambda name: path if name == level.level else path_of(name)
    library.runnable_levels = lambda: [*runs, level.level]


def main(arguments: list[str]) -> int:
    """Runs the command that the module describes."""
    levels = {each.level: each for each in (LEVEL, AMX)}
    if len(arguments) < 2 or arguments[0] not in levels:
        print((__doc__ or "").split("\n\n")[1], file=sys.stderr)
        return 2
    level = levels[arguments[0]]
    if level.level in available_levels():
        print(f"This CPU runs {level.level}: run the tests as they are.", file=sys.stderr)
        return 2
    if (why := level.unusable()) is not None:
        print(f"{why[0].upper()}{why[1:]}.", file=sys.stderr)
        return 1
    have(level)
    if arguments[1] == "digests":
        from tests.bits import digests

        return digests.main(arguments[2:])
    return int(pytest.main(["-n", "0", "-p", "no:cacheprovider", *arguments[1:]]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
