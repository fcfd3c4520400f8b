"""Routing policies by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from twostroke.lab.sim.fleet.predicted_router import PredictedSeconds
from twostroke.lab.sim.fleet.routing import LeastLoaded, PrefixAffinity, RoundRobin, Router
from twostroke.types.errors import ConfigError

ROUTERS: dict[str, Callable[[], Router]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "prefix-affinity": PrefixAffinity,
    "predicted": PredictedSeconds,
}


def named_router(name: str) -> Router:
    """Returns a new router with this policy. Raises ConfigError with the nearest name."""
    if name not in ROUTERS:
        near = difflib.get_close_matches(name.lower(), ROUTERS, 1, cutoff=0.3)
        raise ConfigError(
            f"There is no routing policy {name[:60]!r}.",
            why=f"There are {', '.join(ROUTERS)}.",
            fix=f"Did you mean {near[0]}?" if near else "Choose one of these.",
        )
    return ROUTERS[name]()
