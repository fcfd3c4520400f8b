"""What the caller's environment says of Twostroke and of libraries does not reach tests: each sets what it asks for."""

from __future__ import annotations

from collections.abc import MutableMapping

from tests.private_cache import RUN_FOLDER

PREFIXES = ("TWOSTROKE_", "HF_", "OTEL_", "WATCHDOG_")
NAMES = {"NOTIFY_SOCKET", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}
NAMES |= {f"{kind}_proxy" for kind in ("http", "https", "all")} | {f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "ALL")}
KEPT = {RUN_FOLDER, "TWOSTROKE_THREADS", "TWOSTROKE_SPECULATE"}
"""The folder of a run; and two that a developer may set for a run."""


def clear(environment: MutableMapping[str, str]) -> None:
    """Remove what tests shall not see."""
    for name in [name for name in environment if name.startswith(PREFIXES) or name in NAMES]:
        if name not in KEPT:
            del environment[name]
