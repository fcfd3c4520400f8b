"""Print what happens in one random schedule: `python -m tests.faults.replay SEED [--fail-allocation K]`."""

from __future__ import annotations

import argparse

from tests.faults.world import World


def command(seed: int, fail_allocation: int = 0) -> str:
    """The command that shows this schedule."""
    return f"python -m tests.faults.replay {seed}" + (
        f" --fail-allocation {fail_allocation}" if fail_allocation else ""
    )


def main() -> None:
    """Prints every event of the schedule. An invariant that breaks raises at its step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--fail-allocation", type=int, default=0, metavar="K", help="the K-th allocation finds no page")
    asked = parser.parse_args()
    world = World(asked.seed, allocation_fails=lambda call: call == asked.fail_allocation, say=print)
    print(f"seed {asked.seed}: {world.num_pages} pages of {world.page_tokens} tokens, {world.limits}")
    print(world.run())


if __name__ == "__main__":
    main()
