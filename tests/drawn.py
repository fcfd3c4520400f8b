"""What Hypothesis draws: the same in every run of a commit, or by the seed of a daily run.

Hypothesis derandomized draws by the name and source of a test. But in 5% of its draws it takes a constant out of all
local modules that this process has imported so far. These depend on the tests that ran before and on which worker ran
them, so without more, the same commit would draw differently each time.
"""

from __future__ import annotations

from hypothesis import core
from hypothesis.internal.conjecture import providers


def by_test_alone() -> None:
    """No constants of modules from now on in this process; profiles say `derandomize`."""
    nothing = providers.Constants()
    providers._get_local_constants = lambda: nothing


def by_seed(seed: int) -> None:
    """As `--hypothesis-seed`, which wins where it was given, too."""
    if core.global_force_seed is None:
        core.global_force_seed = seed
