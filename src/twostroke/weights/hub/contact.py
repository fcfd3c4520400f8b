"""The first question of an operation to a hub, such as which files a repository has.

It is asked once, and for CONTACT_S at most. Where the hub's name is not known, where the connection is refused, or
where nothing answers, the operation goes on with the files that are on this machine, or ends. huggingface_hub would
repeat most of its own questions for 25 seconds, also without a network.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from twostroke.types.errors import ModelError
from twostroke.weights.gguf.file_names import ENDING
from twostroke.weights.hub.place import HubPlace
from twostroke.weights.hub.problems import is_unreachable, nearest, not_there, translate
from twostroke.weights.hub.retries import Notice, RetryWaits, may_pass

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

CONTACT_S = 10.0
"""The longest time in seconds without an answer of the hub."""


def ask(place: HubPlace, sizes: bool = False) -> ModelInfo:
    """Returns the commit and the files of a repository's revision. sizes: whether to ask for the files' sizes too.
    Raises huggingface_hub's errors and those of its HTTP client."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=place.endpoint, token=place.token)
    return api.model_info(place.repo_id, revision=place.revision, files_metadata=sizes, timeout=CONTACT_S)


def ask_patiently(place: HubPlace) -> ModelInfo:
    """Returns what `ask` returns. Asks a hub that is busy or lost the connection for about a minute. Raises the error
    of the last attempt."""
    waits = RetryWaits(Notice())
    while True:
        try:
            return ask(place)
        except Exception as error:
            waits.wait(error)


def reaches(place: HubPlace, file: str) -> bool:
    """Returns whether there is a connection to the hub, which is asked about one file. Other faults, such as a missing
    file, are met again by the code that downloads it."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    try:
        url = hf_hub_url(place.repo_id, file, revision=place.revision, endpoint=place.endpoint)
        get_hf_file_metadata(url, token=place.token, timeout=CONTACT_S, endpoint=place.endpoint)
    except Exception as error:
        return not is_unreachable(error)
    return True


def names_of(info: ModelInfo) -> list[str]:
    """Returns the names of all files of a revision."""
    return [sibling.rfilename for sibling in info.siblings or []]


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
    named = place.folder / "refs" / (place.revision or "main")
    commit = named.read_text().strip() if named.is_file() else place.revision or ""
    snapshot = place.folder / "snapshots" / commit
    if not commit or not snapshot.is_dir():
        raise not_there(
            f"{place.repo_id} is not on this machine.", place.offline, "", nearest(place.repo_id, place.cache)
        )
    return [str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.suffix.lower() == ENDING]
