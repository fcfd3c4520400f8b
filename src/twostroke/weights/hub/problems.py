"""Explains failures of a hub in words: one of our errors for each error that huggingface_hub and its HTTP client raise.
"""

from __future__ import annotations

import difflib
import errno
from pathlib import Path
from typing import TYPE_CHECKING

from twostroke.types.errors import ModelError, ModelNotFound
from twostroke.types.first_use.lazy_module import LazyModule
from twostroke.weights.store.table import rows

if TYPE_CHECKING:
    from twostroke.weights.hub import resume
else:  # only downloads need it
    resume = LazyModule("twostroke.weights.hub.resume")


_FILES = "EACCES EPERM EROFS EIO ENOENT ENOTDIR EISDIR EEXIST ENAMETOOLONG ELOOP EMFILE ENFILE EFBIG ESTALE"
_OF_FILES = frozenset(getattr(errno, name) for name in _FILES.split())
"""Numbers of errors that concern files, and not connections."""
_NEVER_REACHED = ("ConnectError", "ConnectTimeout")
"""Names of the HTTP client's errors for an address that gave no connection."""


def translate(error: Exception, repo_id: str, revision: str | None, offline: bool, cache: Path) -> ModelError:
    """Returns our error for one of huggingface_hub's; raises an unknown error unchanged. The order of the checks
    matters, because these errors inherit from each other."""
    from huggingface_hub import errors as hub

    if isinstance(error, ModelError):
        return error
    if isinstance(error, hub.HFValidationError):
        why = "A hub id has the form publisher/model, in letters, digits, dots, dashes and underscores."
        return ModelNotFound(f"{repo_id[:100]} is no hub id.", why=why, fix="Check the spelling.")
    if isinstance(error, hub.GatedRepoError):
        accept = "Accept its terms on its page on the hub, then set HF_TOKEN or run `hf auth login`."
        what = f"{repo_id} is gated: its publisher wants to know who downloads it."
        return ModelNotFound(what, why="The hub refused access.", fix=accept + _copy_of(repo_id))
    if isinstance(error, hub.RevisionNotFoundError):
        return ModelNotFound(
            f"{repo_id} has no revision {revision or 'main'}.",
            why="It is no branch, tag or commit of that repository.",
            fix="Leave --revision out for the newest, or take one from the model's page on the hub.",
        )
    if isinstance(error, hub.RepositoryNotFoundError) or status_of(error) in (401, 403):
        return ModelNotFound(
            f"There is no model {repo_id} on the hub, or it is private.",
            why="The hub does not say which.",
            fix=nearest(repo_id, cache) or "Check the spelling; for a private one set HF_TOKEN.",
        )
    if isinstance(error, hub.IncompleteSnapshotError):
        return not_there(f"{repo_id} is here only in part.", offline, "its download was interrupted", "")
    if isinstance(error, hub.LocalEntryNotFoundError | hub.OfflineModeIsEnabled):
        return not_there(f"{repo_id} is not on this machine.", offline, "", nearest(repo_id, cache))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(
            f"The disk is full: {repo_id} could not be downloaded.",
            why="What has come so far is kept.",
            fix="Make room, or set HF_HOME to a folder on another disk, and start again.",
        )
    if isinstance(error, OSError) and error.errno in _OF_FILES:
        return ModelError(
            f"{repo_id} could not be downloaded: {error.filename or cache} cannot be written.",
            why=f"{error.strerror}. What has come so far is kept.",
            fix="Give this user leave to write there, or set HF_HOME to another folder, and start again.",
        )
    if resume.is_transport_error(error) and type(error).__name__ in _NEVER_REACHED:
        return ModelError(
            f"{repo_id} could not be downloaded.",
            why=f"The hub cannot be reached: {str(error)[:200] or 'no answer'}. What has come so far is kept.",
            fix=nearest(repo_id, cache)
            or "Check the network, then start again. `twostroke list` shows the models that are here.",
        )
    if status_of(error) is not None or resume.is_transport_error(error):
        return ModelError(
            f"The download of {repo_id} was interrupted.",
            why=f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else 'no answer'}.",
            fix="Start again: it goes on where it stopped.",
        )
    raise error


def not_there(what: str, offline: bool, reason: str, near: str) -> ModelNotFound:
    """Returns the error for files that are not on this machine. near: a question that may help; "" for none."""
    network = "the network was not to be used" if offline else "the hub could not be reached"
    why = f"{reason}, and {network}." if reason else f"{network}."
    fix = "Start again without offline mode." if offline else "Check the network, then start again."
    return ModelNotFound(what, why=why[0].upper() + why[1:], fix=near or fix)


def status_of(error: Exception) -> int | None:
    """Returns the HTTP status of a client's error; None where there was no answer."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def nearest(repo_id: str, cache: Path) -> str:
    """Returns a question that names the most similar model on this machine; "" where there is none."""
    known = [path.name.removeprefix("models--").replace("--", "/", 1) for path in cache.glob("models--*--*")]
    near = difflib.get_close_matches(repo_id, [name for name in known if name != repo_id], 1, cutoff=0.7)
    return f"Did you mean {near[0]}, which is on this machine?" if near else ""


def _copy_of(repo_id: str) -> str:
    """Returns a sentence with the short name of another publisher's copy of the same model; "" where there is none."""
    base = repo_id.rpartition("/")[2].lower()
    same = [row.name for row in rows().values() if row.repo.rpartition("/")[2].lower().removesuffix("-gguf") == base]
    return f" {same[0]} is another publisher's copy of it." if same else ""
