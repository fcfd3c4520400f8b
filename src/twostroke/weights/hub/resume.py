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
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twostroke.system import here
from twostroke.types.errors import ModelError
from twostroke.weights.hub.progress import Meter

PARTIAL_SUFFIX = ".twostroke-partial"
ATTEMPTS = 4
"""The number of times in a row that a connection may break without bringing a byte."""

RETRY_DELAY_S = 1.0
STREAMS = 4
CONTENT_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a commit. etag: the SHA-256 of a large file (64 digits), else the git hash (40)."""

    name: str
    url: str
    etag: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Hub:
    """The server and the account. token: False sends none. cache: the folder of all models."""

    endpoint: str | None
    token: str | bool | None
    cache: Path


def prefetch(
    hub: Hub, repo_id: str, revision: str | None, wanted: Sequence[str], unwanted: Sequence[str], meter: Meter
) -> None:
    """Brings the weight files of a revision into the hub's cache; each continues where an earlier run stopped.

    Raises ModelError (no room, damaged on the way) and the HTTP client's transport errors. Where the hub cannot even
    list the files, the function does nothing: snapshot_download will report the reason.
    """
    folder = hub.cache / ("models--" + repo_id.replace("/", "--"))
    files = [file for file in _missing_files(hub, repo_id, revision, folder, wanted, unwanted) if file is not None]
    if not files:
        return
    blobs = folder / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    _require_room(repo_id, blobs, files)
    for file in files:
        meter.expect(file.num_bytes)
    with ThreadPoolExecutor(STREAMS) as pool:
        for finished in [pool.submit(_fetch, hub, file, blobs, meter) for file in files]:
            finished.result()


def is_transport_error(error: BaseException) -> bool:
    """Returns whether the HTTP client of huggingface_hub (httpx, later httpx2) lost its connection."""
    return type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")


def _may_pass(error: Exception) -> bool:
    """Returns whether another attempt makes sense: after a lost connection, or with a busy or failing server."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    return is_transport_error(error) or status == 429 or status >= 500


def _missing_files(
    hub: Hub, repo_id: str, revision: str | None, folder: Path, wanted: Sequence[str], unwanted: Sequence[str]
) -> list[RemoteFile]:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    try:
        info = HfApi(endpoint=hub.endpoint, token=hub.token).model_info(repo_id, revision=revision)
        names = [sibling.rfilename for sibling in info.siblings or []]
        chosen = filter_repo_objects(names, allow_patterns=list(wanted), ignore_patterns=list(unwanted))
        snapshot = folder / "snapshots" / str(info.sha)
        absent = [name for name in chosen if not (snapshot / name).exists()]
        described = (_describe(hub, repo_id, name, str(info.sha)) for name in absent)
        found = {file.etag: file for file in described if file is not None}
        return [file for file in found.values() if not (folder / "blobs" / file.etag).exists()]
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError):
        return []
    except Exception as error:
        if is_transport_error(error):
            return []
        raise


def _describe(hub: Hub, repo_id: str, name: str, commit: str) -> RemoteFile | None:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    url = hf_hub_url(repo_id, name, revision=commit, endpoint=hub.endpoint)
    metadata = get_hf_file_metadata(url, token=hub.token, endpoint=hub.endpoint)
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


def _fetch(hub: Hub, file: RemoteFile, blobs: Path, meter: Meter) -> None:
    with _locked_partial(blobs / (file.etag + PARTIAL_SUFFIX)) as partial:
        if partial is None:
            meter.expect(-file.num_bytes)
            return
        if (blobs / file.etag).exists():
            os.unlink(blobs / (file.etag + PARTIAL_SUFFIX))
            meter.add(file.num_bytes)
            return
        done_bytes = os.fstat(partial).st_size
        meter.add(min(done_bytes, file.num_bytes))
        attempts = ATTEMPTS
        while done_bytes < file.num_bytes:
            before = done_bytes
            try:
                _stream(hub, file, partial, done_bytes, meter)
            except Exception as error:
                attempts -= 1
                if not _may_pass(error) or attempts <= 0:
                    raise
                time.sleep(RETRY_DELAY_S)
            done_bytes = os.fstat(partial).st_size
            if done_bytes > before:
                attempts = ATTEMPTS
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


def _stream(hub: Hub, file: RemoteFile, partial: int, first_byte: int, meter: Meter) -> None:
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

    headers = build_hf_headers(token=hub.token) | {"Accept-Encoding": "identity"}
    if first_byte:
        headers["Range"] = f"bytes={first_byte}-"
    # The client itself drops the authorization header when a redirect leads to another host.
    with get_session().stream("GET", file.url, headers=headers, follow_redirects=True) as response:
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
