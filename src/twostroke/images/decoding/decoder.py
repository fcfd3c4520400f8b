"""Opens image files in a process of its own, which has limits of memory and time and is killed beyond them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from twostroke.system.starting import apart, why_no_process
from twostroke.types.errors import BackendError, HelperNotStarted, InvalidRequest

CHILD = Path(__file__).with_name("child.py")
START_S = 60.0
FORMATS = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"BM": "BMP",
}
"""The first bytes of files in the formats that are read; WebP is recognized separately."""
OTHERS = {
    **{b"II*\0": "TIFF", b"MM\0*": "TIFF", b"%PDF": "PDF", b"8BPS": "PSD", b"\0\0\1\0": "ICO", b"<svg": "SVG"},
    **{b"\xff\x0a": "JPEG XL", b"\0\0\0\x0cJXL ": "JPEG XL", b"\0\0\0\x0cjP  ": "JPEG 2000"},
}
BRANDS = {b"avi": "AVIF", b"hei": "HEIC", b"hev": "HEIC", b"mif": "HEIC", b"msf": "HEIC"}
"""First bytes of a brand -> format. An ISO base media file names its brand after `ftyp`. Other brands count as videos.
"""
OPENING_BYTES = 1024
"""The number of bytes at the beginning of a text file in which `<svg` is looked for."""
TAKEN = "PNG, JPEG, WebP, GIF or BMP"
JOBS = 256
"""The number of images after which the process that opens them is replaced by a new one."""
READ_BYTES = 1 << 20
MEMORY_BYTES = 256 << 20
BYTES_A_PIXEL = 24
"""The memory for one pixel in bytes: it covers the copies of an image that exist at one time while it is converted and
resized."""

Step = tuple[Any, ...]
Rule = Callable[[int, int], tuple[Sequence[Step], int]]
"""rule(width, height): returns the steps by which the child process cuts an image of that size into tiles, and the
number of bytes of all tiles."""


class ImageLimits(Struct, frozen=True):
    """file_bytes, pixels: the most bytes and pixels of one image. images: the most images of one request. wall_s: the
    most seconds that one image may take in the process.
    """

    file_bytes: int = 20 << 20
    pixels: int = 50_000_000
    images: int = 32
    wall_s: float = 10.0


def has_pillow() -> bool:
    """Returns whether Pillow is installed. Only the package itself is imported, which reads no image file and loads no
    decoder."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        return False
    return True


def require_pillow() -> None:
    """Raises BackendError where Pillow is not installed."""
    if not has_pillow():
        raise BackendError(
            "Image files cannot be opened.", why="Pillow is not installed.", fix="pip install 'twostroke[images]'"
        )


def format_of(data: bytes) -> str:
    """Returns the format that a file's first bytes name. Raises InvalidRequest for formats that are not read."""
    for begin, name in FORMATS.items():
        if data.startswith(begin):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    other = next((name for begin, name in OTHERS.items() if data.lstrip().startswith(begin)), "")
    if data[4:8] == b"ftyp":
        other = BRANDS.get(data[8:11], "MP4")
    elif data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"<?xml", b"<!--", b"<!DOCTYPE")):
        other = "SVG" if b"<svg" in data[:OPENING_BYTES] else ""
    what = f"The image has the format {other}, which is not read." if other else "The image has no format that is read."
    raise InvalidRequest(
        what if data else "The image has no bytes.",
        param="image",
        why="The first bytes of the file say its format.",
        fix=f"Send {TAKEN}.",
    )


class ImageDecoder:
    """Opens one image at a time; any thread may ask. The process starts with the first image."""

    def __init__(self, limits: ImageLimits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._jobs = 0

    def tiles(self, data: bytes, rule: Rule) -> bytes:
        """Returns the tiles that the rule's steps give for the image in a file, as bytes. Raises InvalidRequest,
        BackendError."""
        if len(data) > self.limits.file_bytes:
            raise self._too_large(f"The file has {len(data):,} bytes", f"{self.limits.file_bytes:,} bytes")
        name = format_of(data)
        with self._lock:
            process = self._started()
            until_s = time.monotonic() + self.limits.wall_s
            begin = {"bytes": len(data), "formats": [name], "pixels": self.limits.pixels}
            size = self._exchange(process, begin, data, until_s)
            self._raise_fault(name, size)
            width, height = int(size["width"]), int(size["height"])
            try:
                if width * height > self.limits.pixels:
                    limit = f"{self.limits.pixels:,} pixels"
                    raise self._too_large(f"The image has {width:,} x {height:,} pixels", limit)
                steps, count = rule(width, height)
            except InvalidRequest:
                self._send(process, {"steps": []}, b"", until_s)
                raise
            asked = {"steps": [list(step) for step in steps], "wall_s": self.limits.wall_s}
            made = self._exchange(process, asked, b"", until_s)
            self._raise_fault(name, made)
            if made.get("bytes") != count:
                self._end()
                raise BackendError("The process that opens images gave a wrong number of bytes.")
            return self._read(process, count, until_s)

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        self._jobs += 1
        if self._process is not None and self._process.poll() is None and self._jobs <= JOBS:
            return self._process
        self._end()
        require_pillow()
        memory = MEMORY_BYTES + BYTES_A_PIXEL * self.limits.pixels
        command = [sys.executable, "-I", str(CHILD), str(memory)]
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        try:  # Ctrl-C must reach only the parent, which ends this process when it is done
            process: subprocess.Popen[bytes] = apart(
                lambda **own: subprocess.Popen(command, bufsize=0, env={}, **streams, **own)
            )
        except OSError as error:
            raise _not_started(why_no_process(error)) from None
        self._process, self._jobs = process, 1
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        first = self._line(process, time.monotonic() + START_S)
        if refused := first.get("refused"):
            self._end()
            raise _not_started(f"The system does not let it limit itself ({refused}).")
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass  # the pipe broke before, which is the reason for closing

    def _exchange(
        self, process: subprocess.Popen[bytes], ask: dict[str, Any], data: bytes, until_s: float
    ) -> dict[str, Any]:
        self._send(process, ask, data, until_s)
        return self._line(process, until_s)

    def _send(self, process: subprocess.Popen[bytes], ask: dict[str, Any], data: bytes, until_s: float) -> None:
        if process.stdin is None:
            raise self._lost()
        left = memoryview(json.dumps(ask).encode() + b"\n" + data)
        while left:
            self._wait([], [process.stdin], until_s)
            try:
                left = left[os.write(process.stdin.fileno(), left) :]
            except OSError:
                raise self._lost() from None

    def _line(self, process: subprocess.Popen[bytes], until_s: float) -> dict[str, Any]:
        """Reads one line byte by byte, because the bytes after it are pixels."""
        line = b""
        while not line.endswith(b"\n"):
            line += self._read(process, 1, until_s)
        found: dict[str, Any] = json.loads(line)
        return found

    def _read(self, process: subprocess.Popen[bytes], count: int, until_s: float) -> bytes:
        if process.stdout is None:
            raise self._lost()
        made = bytearray()
        while len(made) < count:
            self._wait([process.stdout], [], until_s)
            piece = os.read(process.stdout.fileno(), min(READ_BYTES, count - len(made)))
            if not piece:
                raise self._lost()
            made += piece
        return bytes(made)

    def _wait(self, reads: list[Any], writes: list[Any], until_s: float) -> None:
        left_s = until_s - time.monotonic()
        ready = select.select(reads, writes, [], max(0.0, left_s)) if left_s > 0 else ([], [], [])
        if not (ready[0] or ready[1]):
            self._end()
            raise InvalidRequest(
                "The image takes too long to open.",
                param="image",
                why=f"It may take {self.limits.wall_s:g} s.",
                fix="Send a smaller image, or one that another program has saved again.",
            )

    def _lost(self) -> InvalidRequest:
        self._end()
        return InvalidRequest(
            "The image cannot be opened.",
            param="image",
            why="The process that opens it ended: it may have needed more memory than it may have.",
            fix="Send a smaller image, or one that another program has saved again.",
        )

    def _raise_fault(self, name: str, found: dict[str, Any]) -> None:
        if "fault" in found:
            raise InvalidRequest(
                f"The image cannot be read as a {name} file: {found['fault']}.",
                param="image",
                fix="Send the whole file, as a program wrote it.",
            )

    def _too_large(self, what: str, limit: str) -> InvalidRequest:
        return InvalidRequest(f"{what}; at most {limit} are read.", param="image", fix="Make the image smaller.")


def _not_started(why: str) -> HelperNotStarted:
    fix = "Ask without images, or let the container start processes and set their limits."
    return HelperNotStarted("The process that opens images did not start.", why=why, fix=fix)
