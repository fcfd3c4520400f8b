"""Fetches weights before huggingface_hub does, so that an interrupted download continues inside a file.

huggingface_hub throws a partial file away when its process ends (since 1.18; a shared partial file can be corrupted
where locks do not work). For a shard of 5 GB that costs too much. So this module fetches the large files into

    <cache>/models--publisher--model/blobs/<etag>.twostroke-partial

which a later run continues with a Range request. The file becomes the blob of huggingface_hub's own cache only when its
length is right and, for large files, its SHA-256 is the etag. Files that cannot be fetched in this way (no etag, or
another process fetches them) are left to huggingface_hub.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twostroke.system import here
from twostroke.types.errors import ModelError
from twostroke.weights.hub.contact import ask, names_of
from twostroke.weights.hub.place import HubPlace
from twostroke.weights.hub.problems import is_transport_error, is_unreachable
from twostroke.weights.hub.progress import Meter
from twostroke.weights.hub.retries import Notice, RetryWaits

PARTIAL_SUFFIX = ".twostroke-partial"
SILENCE_S = 10.0
"""The longest time in seconds without a byte before a connection counts as lost."""
STREAMS = 4
CONTENT_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a commit. etag: the SHA-256 of a large file (64 digits), else the git hash (40)."""

    name: str
    url: str
    etag: str
    num_bytes: int


def prefetch(place: HubPlace, wanted: Sequence[str], unwanted: Sequence[str], meter: Meter) -> bool:
    """Brings the weight files of a revision into the hub's cache; each continues where an earlier run stopped. Returns
    False where the hub cannot be reached: only files that are on this machine can be used then.

    Raises ModelError (no room, damaged on the way) and the HTTP client's transport errors. Where the hub cannot even
    list the files, the function does nothing: snapshot_download will report the reason.
    """
    try:
        files = _missing_files(place, wanted, unwanted)
    except Exception as error:
        if is_unreachable(error):
            return False
        if not _is_of_hub(error):
            raise
        files = []
    if not files:
        return True
    blobs = place.folder / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    _require_room(place.repo_id, blobs, files)
    for file in files:
        meter.expect(file.num_bytes)
    notice = Notice()
    with ThreadPoolExecutor(STREAMS) as pool:
        for finished in [pool.submit(_fetch, place.token, file, blobs, meter, notice) for file in files]:
            finished.result()
    return True


def _is_of_hub(error: Exception) -> bool:
    """Returns whether the hub, its client or the connection raised this error."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    known = (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError)
    return isinstance(error, known) or is_transport_error(error)


def _missing_files(place: HubPlace, wanted: Sequence[str], unwanted: Sequence[str]) -> list[RemoteFile]:
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    info, folder = ask(place), place.folder
    chosen = filter_repo_objects(names_of(info), allow_patterns=list(wanted), ignore_patterns=list(unwanted))
    snapshot = folder / "snapshots" / str(info.sha)
    absent = [name for name in chosen if not (snapshot / name).exists()]
    described = (_describe(place, name, str(info.sha)) for name in absent)
    found = {file.etag: file for file in described if file is not None}
    return [file for file in found.values() if not (folder / "blobs" / file.etag).exists()]


def _describe(place: HubPlace, name: str, commit: str) -> RemoteFile | None:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    url = hf_hub_url(place.repo_id, name, revision=commit, endpoint=place.endpoint)
    metadata = get_hf_file_metadata(url, token=place.token, endpoint=place.endpoint)
    if metadata.etag is None or metadata.size is None or not CONTENT_ETAG.fullmatch(metadata.etag):
        return None
    return RemoteFile(name, url, metadata.etag, metadata.size)


def _require_room(repo_id: str, blobs: Path, files: list[RemoteFile]) -> None:
    kept = sum(path.stat().st_size for file in files if (path := blobs / (file.etag + PARTIAL_SUFFIX)).exists())
    needed_bytes, free_bytes = sum(file.num_bytes for file in files) - kept, shutil.disk_usage(blobs).free
    if needed_bytes > free_bytes:
        raise ModelError(
            f"There is no room for {repo_id}.",
            why=f"{needed_bytes / 1e9:.2f} GB are to be downloaded, {free_bytes / 1e9:.2f} GB are free.",
            fix="Make room, or set HF_HOME to a folder on another disk.",
        )


def _fetch(token: str | bool | None, file: RemoteFile, blobs: Path, meter: Meter, notice: Notice) -> None:
    with _locked_partial(blobs / (file.etag + PARTIAL_SUFFIX)) as partial:
        if partial is None:
            meter.expect(-file.num_bytes)
            return
        if (blobs / file.etag).exists():
            os.unlink(blobs / (file.etag + PARTIAL_SUFFIX))
            meter.add(file.num_bytes)
            return
        done_bytes, waits = os.fstat(partial).st_size, RetryWaits(notice)
        meter.add(min(done_bytes, file.num_bytes))
        while done_bytes < file.num_bytes:
            failure: Exception | None = None
            try:
                _stream(token, file, partial, done_bytes, meter)
            except Exception as error:
                failure = error
            before, done_bytes = done_bytes, os.fstat(partial).st_size
            if done_bytes > before:
                waits.renew()
            if failure is not None:
                waits.wait(failure)
            elif done_bytes == before:
                raise _damaged(file, "Fewer bytes came than the hub announced.")
        _check(partial, file, blobs)
        os.replace(blobs / (file.etag + PARTIAL_SUFFIX), blobs / file.etag)


@contextlib.contextmanager
def _locked_partial(path: Path) -> Iterator[int | None]:
    """Yields a descriptor of the partial file, locked by this process; None where another process fetches it, or has
    just finished it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | here.file_flags(follow=False), 0o644)
    try:
        try:
            here.lock(descriptor, wait=False)
            ours = os.stat(path).st_ino == os.fstat(descriptor).st_ino
        except OSError:
            ours = False
        yield descriptor if ours else None
    finally:
        os.close(descriptor)


def _stream(token: str | bool | None, file: RemoteFile, partial: int, first_byte: int, meter: Meter) -> None:
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

    headers = build_hf_headers(token=token) | {"Accept-Encoding": "identity"}
    if first_byte:
        headers["Range"] = f"bytes={first_byte}-"
    # The client itself drops the authorization header when a redirect leads to another host.
    with get_session().stream("GET", file.url, headers=headers, follow_redirects=True, timeout=SILENCE_S) as response:
        hf_raise_for_status(response)
        offset = first_byte if _continues(response, first_byte) else 0
        if offset != first_byte:
            meter.add(-first_byte)
            os.ftruncate(partial, 0)
        for chunk in response.iter_bytes():
            if offset + len(chunk) > file.num_bytes:
                raise _damaged(file, "More bytes came than the hub announced.")
            here.write_at(partial, chunk, offset)
            offset += len(chunk)
            meter.add(len(chunk))


def _continues(response: Any, first_byte: int) -> bool:
    """Returns whether the answer begins where the last attempt stopped. A server may ignore the range and send the
    whole file."""
    content_range = str(response.headers.get("Content-Range", ""))
    return int(response.status_code) == 206 and content_range.startswith(f"bytes {first_byte}-")


def _check(partial: int, file: RemoteFile, blobs: Path) -> None:
    os.fsync(partial)
    problem = "" if os.fstat(partial).st_size == file.num_bytes else "It is too long."
    if not problem and len(file.etag) == 64:
        digest, offset = hashlib.sha256(), 0
        while part := here.read_at(partial, 1 << 22, offset):
            digest.update(part)
            offset += len(part)
        problem = "" if digest.hexdigest() == file.etag else "Its SHA-256 is not the one that the hub announced."
    if problem:
        os.unlink(blobs / (file.etag + PARTIAL_SUFFIX))
        raise _damaged(file, problem)


def _damaged(file: RemoteFile, why: str) -> ModelError:
    return ModelError(f"{file.name} was damaged on the way.", why=why, fix="Start again: the file is fetched anew.")
