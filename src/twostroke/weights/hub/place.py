"""A repository of a hub: how to reach it, and the names of its files."""

from __future__ import annotations

import contextlib
from pathlib import Path

from msgspec import Struct

from twostroke.types.errors import ModelError
from twostroke.weights.gguf.file_names import ENDING
from twostroke.weights.hub.contact import ask, ask_patiently, names_of
from twostroke.weights.hub.problems import is_unreachable, nearest, not_there, translate
from twostroke.weights.hub.retries import may_pass

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


def names_in(place: HubPlace) -> list[str]:
    """Returns all files of a repository; offline, or where the hub does not answer, the files that are on this machine.

    A hub that cannot be reached is asked once. One that is busy or fails is asked again where this machine has no files
    of the repository. Raises ModelError.
    """
    if place.offline:
        return names_here(place)
    try:
        return names_of(ask(place))
    except Exception as error:
        if may_pass(error):
            with contextlib.suppress(ModelError):
                return names_here(place)
        if is_unreachable(error) or not may_pass(error):
            raise translate(error, place.repo_id, place.revision, place.offline, place.cache) from error
    try:
        return names_of(ask_patiently(place))
    except Exception as error:
        raise translate(error, place.repo_id, place.revision, place.offline, place.cache) from error


def names_here(place: HubPlace) -> list[str]:
    """Returns the files of the snapshot in the cache. Raises ModelNotFound where there is none."""
    folder = place.cache / ("models--" + place.repo_id.replace("/", "--"))
    named = folder / "refs" / (place.revision or "main")
    commit = named.read_text().strip() if named.is_file() else place.revision or ""
    snapshot = folder / "snapshots" / commit
    if not commit or not snapshot.is_dir():
        raise not_there(
            f"{place.repo_id} is not on this machine.", place.offline, "", nearest(place.repo_id, place.cache)
        )
    return [str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.suffix.lower() == ENDING]
