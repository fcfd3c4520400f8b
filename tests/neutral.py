"""Settings of Twostroke and of libraries in the caller's environment do not reach tests. Each test sets what it
needs."""

from __future__ import annotations

from collections.abc import MutableMapping

from tests.private_cache import RUN_FOLDER

PREFIXES = ("TWOSTROKE_", "HF_", "OTEL_", "WATCHDOG_")
NAMES = {"NOTIFY_SOCKET", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}
NAMES |= {f"{kind}_proxy" for kind in ("http", "https", "all")} | {f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "ALL")}
KEPT = {RUN_FOLDER, "TWOSTROKE_THREADS", "TWOSTROKE_SPECULATE"}
"""The folder of a run, and two variables that a developer may set for a run."""


def clear(environment: MutableMapping[str, str]) -> None:
    """Removes the variables that tests must not see."""
    for name in [name for name in environment if name.startswith(PREFIXES) or name in NAMES]:
        if name not in KEPT:
            del environment[name]
