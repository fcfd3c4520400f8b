"""The files that a hub offers under a name, with their sizes and licence, and whether access to them is gated. No
weights are fetched for this."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from twostroke.types.errors import ModelError, ModelNotFound
from twostroke.weights.gguf.file_names import parts_of, whole_models
from twostroke.weights.hub import resume
from twostroke.weights.hub.contact import ask
from twostroke.weights.hub.hub import SETTINGS, UNWANTED, WEIGHTS, meant_file
from twostroke.weights.hub.place import HubPlace, token_for
from twostroke.weights.hub.problems import is_transport_error, status_of, translate
from twostroke.weights.hub.reference import Reference
from twostroke.weights.hub.retries import say_once

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo


class Offer(Struct, frozen=True):
    """One model of a repository, as the hub describes it before a download.

    commit: the commit of the revision. sizes: file name -> bytes of the files that would be downloaded; 0 where the hub
    gives no size. gguf: the first of the GGUF files, "" for safetensors. models: first GGUF file of each model of the
    repository -> bytes of all its parts. gated: whether the publisher wants to know who downloads the model.
    missing_bytes: the bytes that are not on this machine yet.
    """

    reference: Reference
    place: HubPlace
    commit: str
    sizes: Mapping[str, int]
    gguf: str
    models: Mapping[str, int]
    license: str
    gated: bool
    missing_bytes: int

    @property
    def num_bytes(self) -> int:
        """The bytes of all files that would be downloaded."""
        return sum(self.sizes.values())

    @property
    def weight_bytes(self) -> int:
        """The bytes of the files with weights."""
        return sum(size for name, size in self.sizes.items() if name.endswith((".gguf", ".safetensors", ".GGUF")))


def offer_of(
    meant: Reference,
    revision: str | None = None,
    endpoint: str | None = None,
    cache_dir: Path | None = None,
    token: str | None = None,
) -> Offer | None:
    """Asks the hub for the files of a model, their sizes and the licence. Returns None where the hub does not answer.
    meant: the repository, and the quantization or file that the user named.

    Raises ModelNotFound where there is no such model, or where it is gated and this user may not download it.
    """
    revision = revision or meant.revision
    say_once()
    place = HubPlace(meant.repo_id, revision, False, cache_dir, endpoint, token_for(endpoint, token))
    try:
        info = ask(place, sizes=True)
        offer = _offer(meant, place, info)
        if offer.gated:
            _require_access(offer)
        return offer
    except ModelError:
        raise
    except Exception as error:
        if _is_silent(error):
            return None
        raise translate(error, place.repo_id, revision, False, place.cache) from error


def _is_silent(error: Exception) -> bool:
    """Returns whether the hub did not answer at all, or only with a failure of its own. The client raises OSError where
    there is no network."""
    status = status_of(error)
    return is_transport_error(error) or (isinstance(error, OSError) if status is None else status >= 500)


def _offer(meant: Reference, place: HubPlace, info: ModelInfo) -> Offer:
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    all_sizes = {each.rfilename: each.size or 0 for each in info.siblings or []}
    models = {first: sum(all_sizes[part] for part in parts_of(first, all_sizes)) for first in whole_models(all_sizes)}
    first = ""
    if meant.wanted or "config.json" not in all_sizes:
        if not meant.wanted and not models:
            raise ModelNotFound(
                f"{place.repo_id} has no config.json.",
                why="It is not a model in the Hugging Face format, and it holds no GGUF file (it may be an adapter).",
                fix="Look for the original model that it was made from.",
            )
        first = meant_file(list(all_sizes), meant.wanted, place.repo_id)
        names = parts_of(first, all_sizes)
    else:
        found = filter_repo_objects(all_sizes, allow_patterns=[*WEIGHTS, *SETTINGS], ignore_patterns=list(UNWANTED))
        names = sorted(found)
    sizes = {name: all_sizes[name] for name in names}
    commit = str(info.sha)
    missing = sum(size for name, size in sizes.items() if not (place.folder / "snapshots" / commit / name).exists())
    kept = _begun_bytes(place, info, sizes)
    gated = bool(info.gated)
    return Offer(meant, place, commit, sizes, first, models, _license_of(info), gated, max(0, missing - kept))


def _begun_bytes(place: HubPlace, info: ModelInfo, sizes: Mapping[str, int]) -> int:
    """Returns the number of bytes of these files that an interrupted download has left on this machine."""
    etags = [each.lfs.sha256 for each in info.siblings or [] if each.lfs is not None and each.rfilename in sizes]
    found = 0
    for etag in etags:
        try:
            found += os.stat(place.folder / "blobs" / (etag + resume.PARTIAL_SUFFIX)).st_size
        except OSError:
            continue
    return found


def _license_of(info: ModelInfo) -> str:
    """Returns the licence that the repository's card names; "" where it names none."""
    card: Any = info.card_data or {}
    named = card.get("license_name") or card.get("license")
    tagged = next((tag.removeprefix("license:") for tag in info.tags or [] if tag.startswith("license:")), "")
    return str(named[0] if isinstance(named, list) and named else named or tagged)[:100]


def _require_access(offer: Offer) -> None:
    """Asks for the header of one file. Raises the client's GatedRepoError where this user may not download it."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    place = offer.place
    url = hf_hub_url(place.repo_id, next(iter(offer.sizes)), revision=offer.commit, endpoint=place.endpoint)
    get_hf_file_metadata(url, token=place.token, endpoint=place.endpoint)
