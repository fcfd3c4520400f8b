"""Compiles csrc/cuda: the kernels to PTX, and the host library that starts them. Needs the `ziglang` package, no CUDA.

    python src/twostroke/backends/cuda/build.py [--out FOLDER] [--machine-code CHIP ...] [--packed]

PTX is text that the driver compiles for the device at hand and keeps compiled. PTX for sm_80 also runs on every newer
device; PTX for sm_90a runs on compute capability 9.0 alone. A driver takes about 18 seconds to compile PTX, once on
each machine. Machine code saves these seconds, where there is an assembler to make it. Wheels contain all PTX and the
machine code of WHEEL_CHIPS, in archives. An editable installation builds nothing here (setup.py), because most machines
have no GPU.

setup.py runs it before the package is installed, so it uses only the standard library.
"""

from __future__ import annotations

import argparse
import io
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
LIBRARY_FOLDER = HERE / "lib"
SOURCES = HERE.parents[3] / "csrc" / "cuda"
"""The folder of all native code for CUDA. This code includes headers of the CPU's kernels, and those headers include no
file of this folder."""
HEADERS = (SOURCES / "include",)
CHIPS = ("sm_80", "sm_90a")
"""The chips of the PTX that is shipped: one for every chip from sm_80 on, and one only for H100, H200 and similar
chips."""
ASSEMBLED = {**dict.fromkeys(("sm_80", "sm_86", "sm_89", "sm_100", "sm_120"), "sm_80"), "sm_90a": "sm_90a"}
"""Chips with machine code of their own (A100; RTX 30; RTX 40, L4; B200, B300; RTX 50; H100, H200), and the PTX from
which it is made."""
WHEEL_CHIPS = ("sm_80", "sm_90a", "sm_120")
"""The chips whose machine code a wheel has. Code for sm_80 also runs on sm_86 and sm_89. Each further chip takes 0.7 to
0.9 MB; the wheel has no room for sm_100."""
ARCHIVES = {"ptx": (CHIPS,), "cubin": tuple((chip,) for chip in ASSEMBLED)}
"""The chips of each archive, for PTX and for machine code (cubin). The PTX of all CHIPS is in one archive: it is nearly
the same for each, so a further chip adds little. The machine code of each chip has an archive of its own."""
PACKED = ".tar.xz"
_USUAL = {"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 24}
FILTERS = {"ptx": [_USUAL], "cubin": [_USUAL | {"lc": 1, "lp": 3, "pb": 4}]}
"""The LZMA filters that compress the archives. dict_size limits the memory that unpacking takes to 16 MB. For machine
code, pb is 4 because each instruction has 2**4 bytes."""
KERNEL_FLAGS = (
    *("-O3", "-std=c++17", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-nostdinc++", "-Wall", "-Wextra"),
    "-fconvergent-functions",  # no call that may contain a barrier is moved into or out of a branch
    *("-Werror", "-Wno-unused-function", "-Wno-unused-command-line-argument"),
)


def cpu_build() -> ModuleType:
    """Returns the module build.py of the CPU's kernels, which has the compiler and the cache of compiled files.

    setup.py runs before twostroke is installed. It has loaded the module from its file as twostroke_native_build, and
    that module is returned.
    """
    found = sys.modules.get("twostroke_native_build")
    if found is not None:
        return found
    from twostroke.backends.cpu import build

    return build


def compile_ptx(chip: str, unit: Path | None = None) -> Path:
    """Returns the kernels (or another file) as PTX for one chip, from the cache or compiled. Raises RuntimeError."""
    base = cpu_build()
    unit = unit or SOURCES / "kernels.cpp"
    compiler, flags = base.zig(), ("-target", "nvptx64-cuda", f"-mcpu={chip}", *KERNEL_FLAGS)

    def make(path: Path) -> None:
        compiler.run([*flags, *base.include_flags(HEADERS), "-S", str(unit), "-o", str(path)])
        path.write_text(with_threads(path.read_text()))

    inputs = (compiler.version, *flags, unit.name, Path(__file__).read_bytes(), *base.with_headers(unit, HEADERS))
    made: Path = base.shared_cache().get(".ptx", inputs, make)
    return made


def with_threads(ptx: str) -> str:
    """Returns PTX in which the comments "at most N threads" inside kernels have become directives (.maxntid) of these
    kernels. `at_most_threads` of simt.h writes the comments, because clang has no attribute for the directive outside
    of CUDA C++."""
    entries = re.split(r"(?=^\.visible \.entry )", ptx, flags=re.MULTILINE)
    for at, text in enumerate(entries):
        said = re.search(r"// at most (\d+) threads", text)
        if said:
            # the assembler moves registers between warps only where it knows how many blocks a multiprocessor has
            alone = "\n.minnctapersm 1" if "setmaxnreg" in text else ""
            entries[at] = re.sub(r"^\).*$", rf")\n.maxntid {said[1]}, 1, 1{alone}", text, count=1, flags=re.MULTILINE)
    return "".join(entries)


def assembler() -> Path | None:
    """Returns the path of ptxas, from the package nvidia-cuda-nvcc or an installed toolkit; None where there is none.
    """
    of_package = next((path for folder in sys.path for path in Path(folder).glob("nvidia/cu*/bin/ptxas")), None)
    if of_package is not None:
        of_package.chmod(of_package.stat().st_mode | 0o111)  # some installers drop the execute permission
        return of_package
    installed = shutil.which("ptxas")
    return None if installed is None else Path(installed)


def assemble(chip: str) -> Path:
    """Returns machine code for one chip, from the cache or assembled. Raises RuntimeError."""
    ptxas, ptx = assembler(), compile_ptx(ASSEMBLED[chip])
    if ptxas is None:
        raise RuntimeError("there is no ptxas: pip install nvidia-cuda-nvcc brings it")
    version = subprocess.run([str(ptxas), "--version"], capture_output=True, text=True, check=True).stdout

    def make(path: Path) -> None:
        command = [str(ptxas), f"-arch={chip}", str(ptx), "-o", str(path)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"assembling for {chip} failed:\n{result.stderr}")

    made: Path = cpu_build().shared_cache().get(".cubin", (version, chip, ptx.read_bytes()), make)
    return made


def build_host(target: str) -> Path:
    """Builds the host library. Raises RuntimeError."""
    base = cpu_build()
    units = sorted((SOURCES / "host").rglob("*.cpp"))
    triple = ("-target", base.TRIPLES[target])
    # Launches are compared as bytes, so the padding between the members of a kernel's arguments must be zero.
    own = ("-ftrivial-auto-var-init=zero", f"-mcpu={base.LEVELS[target]['generic']}")
    flags = (*base.FLAGS, *base.RELEASE, *triple, *own)
    cache, compiler = base.shared_cache(), base.zig()
    objects = base.compile_all(cache, compiler, [(unit, flags) for unit in units], more=HEADERS)
    made: Path = base.link(cache, compiler, objects, (*triple, "-nostdlib++", "-shared", "-s", "-ldl"), ".so")
    return made


def packed(images: Mapping[str, Path]) -> dict[str, bytes]:
    """Returns archives of compiled kernels by name. images: the files of PTX and machine code, by name. The same files
    give the same bytes."""
    found = {}
    for kind, chips in ((kind, chips) for kind, groups in ARCHIVES.items() for chips in groups):
        names = {chip: f"kernels_{chip}.{kind}" for chip in chips if f"kernels_{chip}.{kind}" in images}
        archived = io.BytesIO()
        with tarfile.open(fileobj=archived, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name in names.values():
                content = images[name].read_bytes()
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        if names:
            compressed = lzma.compress(archived.getvalue(), filters=FILTERS[kind])
            found[f"kernels_{'_'.join(names)}.{kind}{PACKED}"] = compressed
    return found


def chips_of_wheels() -> tuple[str, ...]:
    """Returns the chips whose machine code a wheel has: WHEEL_CHIPS, or none where there is no assembler."""
    if assembler() is not None:
        return WHEEL_CHIPS
    print("No ptxas: the wheel has no machine code for GPUs, and a driver compiles PTX at the first start.")
    return ()


def build_all(
    out: Path = LIBRARY_FOLDER, target: str | None = None, machine_code: Sequence[str] = (), is_packed: bool = False
) -> list[Path]:
    """Builds the kernels and the host library into `out`, and returns the paths of the files. machine_code: the chips
    for which machine code is made, which must be in ASSEMBLED. is_packed: whether the kernels are written as archives.
    Raises RuntimeError."""
    out.mkdir(parents=True, exist_ok=True)
    host = build_host(target or cpu_build().machine())
    with ThreadPoolExecutor() as pool:
        images = {f"kernels_{chip}.ptx": made for chip, made in zip(CHIPS, pool.map(compile_ptx, CHIPS), strict=True)}
        codes = zip(machine_code, pool.map(assemble, machine_code), strict=True)
        images |= {f"kernels_{chip}.cubin": made for chip, made in codes}
    built = packed(images) if is_packed else {name: path.read_bytes() for name, path in images.items()}
    for old in out.glob("kernels_*"):  # old files were made from other sources
        old.unlink()
    built["libtwostroke_cuda.so"] = host.read_bytes()
    for name, content in built.items():
        (out / name).write_bytes(content)
    return [out / name for name in built]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compiles the CUDA backend as the arguments ask, and prints the paths of the files. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Compile the CUDA backend.")
    parser.add_argument("--out", type=Path, default=LIBRARY_FOLDER)
    parser.add_argument("--machine-code", nargs="*", default=(), choices=ASSEMBLED, help="chips; needs ptxas")
    parser.add_argument("--packed", action="store_true", help="images in archives, as in wheels")
    asked = parser.parse_args(arguments)
    try:
        for path in build_all(asked.out, None, asked.machine_code, asked.packed):
            print(path)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
