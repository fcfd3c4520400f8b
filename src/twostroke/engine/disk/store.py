"""The folder of pages on a disk. Pages are found by ids that reveal nothing of prompts, the folder is bounded, and
pages are trusted by their digests alone.

    folder/secret               32 bytes: the key of all ids
    folder/<identity>/*.kv      pages that one model computed by one arithmetic (extent.py)

Several processes may use one folder. Files are named after their contents, written under another name and renamed, and
never changed. A reader that finds a file missing, cut or damaged computes its pages. There is no lock and no database.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import threading
from collections.abc import Callable, Sequence

from twostroke.engine.cache.places import hash_of, page_digest
from twostroke.engine.disk.contract import DiskCounts
from twostroke.engine.disk.extent import FIRST_BYTES, NewPart, UnusableExtent, head_bytes, head_of, name_of, parts_of
from twostroke.engine.disk.files import MOST_STAY_S, SECRET, DiskFiles
from twostroke.engine.disk.index import DiskIndex, DiskPart, FoundFile, leaving

ENDING = ".kv"
SECRET_BYTES = 32
LISTED_EVERY = 16
"""How many files are written before the folder is listed again, because other processes write to it, too."""
MOST_DAMAGED = 8
"""After this many readings in a row that failed, nothing more is read from the disk."""


class DiskStore:
    """Keeps pages and states in the files of a folder. Satisfies PartStore. Any thread may use it. identity: 16 bytes
    that stand for the model and the arithmetic that compute the pages. report: called once for each kind of trouble.

    Trouble with the disk is never an error: `find` then finds nothing and `write` writes nothing. The first error of
    writing ends all writing. When MOST_DAMAGED reads in a row have failed, nothing more is read.
    """

    def __init__(self, files: DiskFiles, identity: bytes, limit_bytes: int, report: Callable[[str], None]) -> None:
        self.counts = DiskCounts()
        self._files, self._identity, self._limit = files, identity, limit_bytes
        self._report = report
        self._below = identity.hex()[:16]
        self._index, self._guard = DiskIndex(), threading.Lock()
        self._secret = b""
        self.readable = self.writable = False
        self._in_folder, self._until_listed, self._failed = 0, 0, 0

    def open(self) -> None:
        """Make the folder and list its files."""
        try:
            for name in ("", self._below):
                self._files.make_folder(name)
            self.writable = True
        except OSError as error:
            self._say(f"Pages are not kept in {self._files.folder}", error, "What is there is read, if it can be.")
        try:
            self._secret = self._known_secret()
            self.readable = True
            self.look()
        except OSError as error:
            self.readable = self.writable = False
            self._say(f"Pages cannot be read from {self._files.folder}", error, "Prompts are computed.")

    def part_id(self, place: bytes) -> bytes:
        """Returns the id under which a page or state is stored: a hash with the folder's secret, so the id reveals
        nothing of the tokens. place: a hash of the prompt's tokens up to its end."""
        return hashlib.blake2b(place, digest_size=16, key=self._secret).digest()

    def find(self, part_id: bytes) -> DiskPart | None:
        with self._guard:
            return self._index.find(part_id) if self.readable else None

    def look(self) -> None:
        """List the folder again: add new files, and forget those that are gone. Raises OSError."""
        listed = self._files.list()
        mine = (file for file in listed if file.name.startswith(f"{self._below}/") and file.name.endswith(ENDING))
        own = {file.name: file for file in mine}
        with self._guard:
            self._in_folder = sum(file.num_bytes for file in listed)
            self._until_listed = LISTED_EVERY
            gone = [name for name in self._index.files if name not in own]
            new = [file for name, file in own.items() if not self._index.knows(name)]
            for name in gone:
                self._index.forget(name)
        for file in new:
            with contextlib.suppress(OSError):  # another process has removed the file
                self._learn(file)
        with contextlib.suppress(OSError):
            self._files.remove_abandoned()

    def write(self, parts: Sequence[tuple[bytes, bytes]], stay_s: float = 0.0) -> None:
        """Writes these pages and states into one new file, each given as (place, bytes), where the place is a hash of
        its tokens. When this fails, no part of the file is left. stay_s: the seconds for which the file is protected;
        see `stay`."""
        if not self.writable or not parts:
            self.counts.lost += len(parts)
            return
        made = [NewPart(self.part_id(place), page_digest(place, hash_of(data)), data) for place, data in parts]
        head, name = head_of(self._identity, made), f"{self._below}/{name_of(made)}"
        size = len(head) + sum(len(part.data) for part in made)
        try:
            if not self._make_room(size):
                self.counts.lost += len(parts)
                return
            self._files.write(name, (head, *(part.data for part in made)))
        except OSError as error:
            self.writable = False
            self.counts.lost += len(parts)
            self._say(f"No more pages are kept in {self._files.folder}", error, "Those that are there are still read.")
            return
        self.counts.written_bytes += size
        with self._guard:
            self._in_folder += size
            self._until_listed -= 1
            self._index.add(name, parts_of(name, head, self._identity, size))
        if stay_s:
            self.stay((name,), stay_s)

    def read(self, part: DiskPart, place: bytes) -> bytes | None:
        """Returns the bytes of a page or state; None when they are gone or damaged, or belong to other tokens. place:
        the hash of the tokens up to the page's end."""
        try:
            data = self._files.read(part.file, part.offset, part.num_bytes)
            whole = len(data) == part.num_bytes and page_digest(place, hash_of(data)) == part.digest
            why = "its bytes are damaged"
        except FileNotFoundError:
            with self._guard:
                self._index.forget(part.file)
            return None
        except OSError as error:
            data, whole, why = b"", False, error.strerror or str(error)
        if whole:
            self._failed = 0
            self.counts.read_bytes += len(data)
            return data
        self._distrust(part.file, why)
        return None

    def used(self, names: Sequence[str]) -> None:
        """Note that these files were read. names: the files in the order of the prompt. Those of its beginning count as
        used last, so they are removed last."""
        for name in reversed(names):
            with contextlib.suppress(OSError):
                self._files.touch(name)

    def stay(self, names: Sequence[str], seconds: float) -> None:
        """Protect these files for `seconds`: files without such a time are removed before them. The files' times of use
        are set to this future time, so that each process that uses the folder sees it."""
        for name in names:
            with contextlib.suppress(OSError):
                self._files.touch(name, min(seconds, MOST_STAY_S))

    def _learn(self, file: FoundFile) -> None:
        try:
            first = self._files.read(file.name, 0, FIRST_BYTES)
            head = self._files.read(file.name, 0, head_bytes(first))
            parts = parts_of(file.name, head, self._identity, file.num_bytes)
        except UnusableExtent as reason:
            self._distrust(file.name, str(reason))
            return
        with self._guard:
            self._index.add(file.name, parts)

    def _distrust(self, name: str, why: str) -> None:
        """Forget a file that cannot be used, and remove it. After too many in a row, nothing is read any more."""
        with self._guard:
            self._index.forget(name)
        self.counts.damaged += 1
        self._failed += 1
        if self.counts.damaged == 1:
            self._report(
                f"{self._files.folder / name} cannot be used: {why}. Its pages are computed, and the file is removed."
            )
        with contextlib.suppress(OSError):
            self._files.remove(name)
        if self._failed >= MOST_DAMAGED and self.readable:
            self.readable = False
            self._report(
                f"Pages are read no more from {self._files.folder}: {MOST_DAMAGED} readings in a row failed. Prompts"
                " are computed."
            )

    def _make_room(self, num_bytes: int) -> bool:
        """Remove the least recently used files when num_bytes more bytes do not fit. Returns False when they can never
        fit."""
        if num_bytes > self._limit:
            return False
        if self._until_listed <= 0 or self._in_folder + num_bytes > self._limit:
            self.look()
        if self._in_folder + num_bytes <= self._limit:
            return True
        for file in leaving(self._leavable(), self._limit, num_bytes):
            self._files.remove(file.name)
            self.counts.removed_files += 1
            with self._guard:
                self._in_folder -= file.num_bytes
                self._index.forget(file.name)
        return self._in_folder + num_bytes <= self._limit

    def _leavable(self) -> list[FoundFile]:
        return [file for file in self._files.list() if file.name != SECRET]

    def _known_secret(self) -> bytes:
        """Returns the secret of the folder; it is made when there is none."""
        with contextlib.suppress(FileNotFoundError):
            found = self._files.read(SECRET, 0, SECRET_BYTES + 1)
            if len(found) == SECRET_BYTES:
                return found
        if not self.writable:
            raise FileNotFoundError("nothing was kept there")
        self._files.write(SECRET, (secrets.token_bytes(SECRET_BYTES),))
        return self._files.read(SECRET, 0, SECRET_BYTES)  # another process may have written a secret meanwhile

    def _say(self, what: str, error: OSError, then: str) -> None:
        self._report(f"{what}: {error.strerror or error}. {then}")
