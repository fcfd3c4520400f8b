"""Finds the kernels that suit a device: machine code for its chip, or PTX. Each is a file of its own, or in an archive
with others, as wheels have them."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import NamedTuple

from twostroke.types.errors import BackendError

IMAGE_NAME, HOPPER_IMAGE_NAME = "kernels_sm_80.ptx", "kernels_sm_90a.ptx"
HOPPER, HOPPER_VERSION = (9, 0), 12000
"""The only compute capability that the Hopper image is for, and the lowest CUDA version of a driver that reads the
image."""
WAITS, WARPGROUPS = 1, 2
"""Flags for ts_cuda_load, which loads a file of compiled kernels (an image). WAITS: each kernel of the image waits by
itself for the kernel before it. WARPGROUPS: the image's matrix products by whole warpgroups may be used."""
HOPPER_HAS = WAITS
"""The flags of the Hopper images. These images also contain products of warpgroups, but no GPU has run their present
form, so WARPGROUPS is not set (docs/gpu.md)."""
PACKED = ".tar.xz"


class Image(NamedTuple):
    """Kernels for one chip or for several. name: the name of the file with the kernels. path: that file, or the archive
    that contains it. has: the flags that ts_cuda_load gets, WAITS and WARPGROUPS."""

    name: str
    path: Path
    has: int

    def read(self) -> bytes:
        """Returns machine code, or the text of PTX. Raises BackendError where the archive is damaged, or where this
        Python cannot unpack archives."""
        if self.path.name == self.name:
            return self.path.read_bytes()
        try:
            with tarfile.open(self.path, "r:xz") as archive:
                file = archive.extractfile(self.name)
                return file.read() if file else b""
        except damages() as error:
            raise BackendError(
                f"The CUDA kernels in {self.path} are damaged.", why=str(error)[:200], fix="Install twostroke again."
            ) from error
        except tarfile.CompressionError as error:
            raise BackendError(
                "The CUDA kernels cannot be unpacked.",
                why=f"They are in {self.path.name}, and this Python has no module lzma ({error}).",
                fix="Install a Python that was built with liblzma; most have it.",
            ) from error


def damages() -> tuple[type[Exception], ...]:
    """Returns the errors that reading a damaged archive of compiled kernels raises."""
    try:
        from lzma import LZMAError
    except ImportError:
        return (tarfile.ReadError, EOFError)
    return (tarfile.ReadError, EOFError, LZMAError)


def images_by_name(folder: Path) -> dict[str, Path]:
    """Returns the files of compiled kernels (images) in a folder: for each name, the path of the file or of the archive
    that contains it. The name of an archive lists its chips: kernels_sm_80_sm_86.cubin.tar.xz. An unpacked file counts
    before an archive."""
    found: dict[str, Path] = {}
    for path in folder.glob(f"kernels_*{PACKED}"):
        chips, _, kind = path.name.removesuffix(PACKED).partition(".")
        found |= {f"kernels_sm_{chip}.{kind}": path for chip in chips.split("_sm_")[1:]}
    return found | {path.name: path for kind in ("ptx", "cubin") for path in folder.glob(f"kernels_*.{kind}")}


def images(folder: Path, capability: tuple[int, int], driver_version: int) -> list[Image]:
    """Returns the images that suit a device, the best first. Machine code runs on its own chip and on newer chips of
    the same generation; machine code of an `a` chip runs only on that chip."""
    major, minor = capability
    there, names = images_by_name(folder), [f"kernels_sm_{major}{each}.cubin" for each in range(minor, -1, -1)]
    hopper = ["kernels_sm_90a.cubin", HOPPER_IMAGE_NAME]
    if capability == HOPPER and driver_version >= HOPPER_VERSION:
        names = hopper
    has = dict.fromkeys(hopper, HOPPER_HAS)
    return [Image(name, there[name], has.get(name, 0)) for name in [*names, IMAGE_NAME] if name in there]
