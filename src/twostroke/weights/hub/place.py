"""A repository of a hub, and how to reach it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

DEFAULT_ENDPOINT = "https://huggingface.co"


def token_for(endpoint: str | None, token: str | None) -> str | bool | None:
    """Returns the token that is sent to a hub. None sends the login of this machine, if there is one; False sends
    nothing. The login of this machine is never sent to an `endpoint` other than the public hub."""
    elsewhere = endpoint is not None and token is None and endpoint.rstrip("/") != DEFAULT_ENDPOINT
    return False if elsewhere else token


class HubPlace(Struct, frozen=True):
    """A repository of a hub, and how to reach it; see resolve_model."""

    repo_id: str
    revision: str | None
    offline: bool
    cache_dir: Path | None
    endpoint: str | None
    token: str | bool | None

    @property
    def cache(self) -> Path:
        """The folder of the hub's cache, which has one folder for each repository."""
        from huggingface_hub import constants

        return self.cache_dir or Path(constants.HF_HUB_CACHE)

    @property
    def folder(self) -> Path:
        """The folder of this repository in the cache."""
        return self.cache / ("models--" + self.repo_id.replace("/", "--"))
