"""Where the hub's cache is."""

from __future__ import annotations

from pathlib import Path


def hub_cache() -> Path:
    """The folder of all models: HF_HUB_CACHE, or below HF_HOME."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)
