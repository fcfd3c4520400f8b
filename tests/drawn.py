"""The draws of Hypothesis: the same in every run of a commit, or by the seed of a daily run.

A derandomized Hypothesis draws by the name and source of a test. But in 5% of its draws it takes a constant out of all
local modules that this process has imported so far. These depend on the tests that ran before and on the worker that
ran them. So without further measures the same commit would draw differently each time.
"""

from __future__ import annotations

from hypothesis import core
from hypothesis.internal.conjecture import providers


def by_test_alone() -> None:
    """From now on, constants of modules are not drawn in this process, and profiles have `derandomize`."""
    nothing = providers.Constants()
    providers._get_local_constants = lambda: nothing


def by_seed(seed: int) -> None:
    """Does what `--hypothesis-seed` does; that option wins where both are given."""
    if core.global_force_seed is None:
        core.global_force_seed = seed
