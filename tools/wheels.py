"""Makes wheels of all systems on one machine: `python -m tools.wheels [--out dist] [--targets x86_64,aarch64-macos]`.

The package is built once for this machine. A wheel of another system has the same Python files, the kernels that
`build.py` compiles for that system, and its own tags. Only wheels for Linux on x86_64 have the CUDA kernels.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from twostroke.backends.cpu import build

ROOT = Path(__file__).resolve().parents[1]
TAGS = {
    "x86_64": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "aarch64": "manylinux_2_28_aarch64",
    "aarch64-macos": "macosx_11_0_arm64",
    "x86_64-macos": "macosx_11_0_x86_64",
    "x86_64-windows": "win_amd64",
    "aarch64-windows": "win_arm64",
}
"""The tags of each target's wheel: the oldest system that its kernels are compiled for (build.TRIPLES)."""
KERNELS, CUDA = "twostroke/backends/cpu/lib/", "twostroke/backends/cuda/lib/"
WITH_CUDA = "x86_64"
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The modification time of every file, so that two builds have the same bytes."""


def main() -> int:
    """Run the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Build wheels for all systems.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--targets", default=",".join(TAGS), help="with commas between [default: all]")
    asked = parser.parse_args()
    targets = asked.targets.split(",")
    unknown = [target for target in targets if target not in TAGS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no target; there are {', '.join(TAGS)}")
    with tempfile.TemporaryDirectory() as folder:
        base = base_wheel(Path(folder))
        for target in targets:
            print(make(base, target, asked.out, Path(folder) / target))
    return 0


def base_wheel(folder: Path) -> Path:
    """Builds the package for this machine with pip. Returns the wheel. Raises RuntimeError when the build fails."""
    options = ("--no-deps", "--no-build-isolation", "-q", "-w", str(folder))
    made = subprocess.run([sys.executable, "-m", "pip", "wheel", str(ROOT), *options], capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"The wheel of this machine could not be built:\n{made.stderr}")
    return next(folder.glob("twostroke-*.whl"))


def make(base: Path, target: str, out: Path, work: Path, levels: list[str] | None = None) -> Path:
    """Makes the wheel of a target from the base wheel and the kernels, which are compiled for the target. Raises
    RuntimeError.

    levels: the levels of the kernels; None for all.
    """
    libraries = build.build_all(work, target, levels=levels)
    return retagged(base, target, {path.name: path.read_bytes() for path in libraries}, out)


def retagged(base: Path, target: str, libraries: Mapping[str, bytes], out: Path) -> Path:
    """Returns a wheel with the Python files of `base` and these kernels, under the tags of `target`."""
    with zipfile.ZipFile(base) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.startswith(KERNELS)}
    if target != WITH_CUDA:
        files = {name: content for name, content in files.items() if not name.startswith(CUDA)}
    files |= {KERNELS + name: content for name, content in libraries.items()}
    (info,) = {name.partition("/")[0] for name in files if ".dist-info/" in name}
    files[f"{info}/WHEEL"] = _described(files[f"{info}/WHEEL"].decode(), TAGS[target])
    record = f"{info}/RECORD"
    del files[record]
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[record] = "".join(line + "\n" for line in [*lines, f"{record},,"]).encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{info.removesuffix('.dist-info')}-py3-none-{TAGS[target]}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return wheel


def _described(text: str, tags: str) -> bytes:
    """Returns the content of the file WHEEL with other tags, one in each line."""
    kept = [line for line in text.splitlines() if line and not line.startswith("Tag:")]
    return "\n".join([*kept, *(f"Tag: py3-none-{tag}" for tag in tags.split(".")), ""]).encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    sys.exit(main())
