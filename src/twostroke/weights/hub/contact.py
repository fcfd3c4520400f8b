"""The first question of an operation to a hub, such as which files a repository has.

It is asked once, and for CONTACT_S at most. Where the hub's name is not known, where the connection is refused, or
where nothing answers, the operation goes on with the files that are on this machine, or ends. huggingface_hub would
repeat most of its own questions for 25 seconds, also without a network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twostroke.weights.hub.problems import is_unreachable
from twostroke.weights.hub.retries import Notice, Patience

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

    from twostroke.weights.hub.place import HubPlace

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
    patience = Patience(Notice())
    while True:
        try:
            return ask(place)
        except Exception as error:
            patience.wait(error)


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
