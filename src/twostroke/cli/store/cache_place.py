"""Finds the folders of the hub's cache and of our own."""

from __future__ import annotations

from pathlib import Path

from twostroke.assembly.settings.engine_settings import DiskSettings
from twostroke.types.errors import ConfigError
from twostroke.types.reading.user_path import user_path


def hub_cache() -> Path:
    """Returns the folder of all models: HF_HUB_CACHE, or a folder below HF_HOME."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def packed_folder(asked: str | None) -> Path:
    """Returns the folder of the packed files, by flag, variable or default. Raises ConfigError where the cache is off.
    """
    from twostroke.assembly.settings.env import asked_by_environment, read_machine
    from twostroke.assembly.settings.resolver import Resolver, collect
    from twostroke.weights.packed.cache_choice import NO_CACHE, PACKED

    environment = {name: value for name, value in asked_by_environment().items() if name == "cache"}
    resolver = Resolver(collect({"cache": asked}, environment))
    chosen = resolver.pick(DiskSettings.cache, str(read_machine().cache_folder), "default cache folder")
    if chosen == NO_CACHE:
        raise ConfigError("The cache is off.", fix="Name its folder: --cache FOLDER.")
    return user_path(chosen) / PACKED
