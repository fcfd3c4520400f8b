"""Fetches the header of a GGUF file of a hub without its tensors, which describes the model before it is downloaded.

The copy on this machine has the file's length, with holes in place of the tensors, so that the usual code can read it.
Tensors that are read into config.json (divisors of rotation) are fetched too: they have some hundred bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twostroke.system import here
from twostroke.types.errors import CorruptModel
from twostroke.weights.gguf.container import parse_header
from twostroke.weights.gguf.header import MAX_HEADER_BYTES, HeaderReader
from twostroke.weights.gguf.naming import ROTATION_DIVISORS
from twostroke.weights.hub.contact import CONTACT_S
from twostroke.weights.hub.offer import Offer
from twostroke.weights.hub.place import HubPlace

FIRST_BYTES = 1 << 20
_SMALL = frozenset(name for names in ROTATION_DIVISORS for name in names)
MOST_DIVISOR_BYTES = 1 << 20

Fetch = Callable[[int, int], bytes]
"""fetch(first byte, number of bytes): returns these bytes, or fewer at the end of the file."""


def fetch_headers(offer: Offer, folder: Path) -> Path:
    """Writes the headers of the model's GGUF files below `folder`; returns the path of the first file.

    Raises CorruptModel, UnsupportedModel, and the errors of the HTTP client.
    """
    for name, num_bytes in offer.sizes.items():
        path = folder / Path(name).name
        _write_header(path, num_bytes, _range_of(offer.place, name, offer.commit))
    return folder / Path(offer.gguf).name


def _write_header(path: Path, num_bytes: int, fetch: Fetch) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | here.file_flags(), 0o600)
    try:
        header = parse_header(_FetchingReader(descriptor, num_bytes, path.name, fetch))
        os.ftruncate(descriptor, num_bytes)
        for name in sorted(_SMALL & header.tensors.keys()):
            tensor = header.tensors[name]
            if tensor.num_bytes <= MOST_DIVISOR_BYTES:
                here.write_at(descriptor, fetch(tensor.offset, tensor.num_bytes), tensor.offset)
    finally:
        os.close(descriptor)


class _FetchingReader(HeaderReader):
    """Reads forward through a file, and fetches more of it when needed."""

    def __init__(self, descriptor: int, file_bytes: int, place: str, fetch: Fetch) -> None:
        super().__init__(descriptor, file_bytes, place)
        self._file, self._fetch, self._have = descriptor, fetch, 0

    def _more(self, at: int, num_bytes: int) -> bytes:
        end = at + num_bytes
        if self._have < end <= min(self.file_bytes, MAX_HEADER_BYTES):
            wanted = min(self.file_bytes, max(end, 2 * self._have, FIRST_BYTES))
            piece = self._fetch(self._have, wanted - self._have)
            self._have += here.write_at(self._file, piece, self._have)
        return super()._more(at, num_bytes)


def _range_of(place: HubPlace, name: str, commit: str) -> Fetch:
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(place.repo_id, name, revision=commit, endpoint=place.endpoint)
    return lambda first, count: _fetch_range(url, place, first, count)


def _fetch_range(url: str, place: HubPlace, first_byte: int, num_bytes: int) -> bytes:
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

    headers = build_hf_headers(token=place.token) | {
        "Accept-Encoding": "identity",
        "Range": f"bytes={first_byte}-{first_byte + num_bytes - 1}",
    }
    with get_session().stream("GET", url, headers=headers, follow_redirects=True, timeout=CONTACT_S) as response:
        hf_raise_for_status(response)
        skipped = 0 if _begins_at(response, first_byte) else first_byte
        if skipped > MAX_HEADER_BYTES:
            raise CorruptModel("The hub sends no parts of files.", why="It ignores ranges.", fix="Use another hub.")
        found = bytearray()
        for chunk in response.iter_bytes():
            found += chunk
            if len(found) >= skipped + num_bytes:
                break
        return bytes(found[skipped : skipped + num_bytes])


def _begins_at(response: Any, first_byte: int) -> bool:
    """Returns whether the answer begins at this byte. A server may ignore the range and send the whole file."""
    said = str(response.headers.get("Content-Range", ""))
    return int(response.status_code) == 206 and said.startswith(f"bytes {first_byte}-")
