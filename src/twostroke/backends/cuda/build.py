"""Compiles csrc/cuda: the kernels to PTX, and the host library that starts them. Needs the `ziglang` package, no CUDA.

    python src/twostroke/backends/cuda/build.py [--out FOLDER] [--machine-code CHIP ...]

PTX is text that the driver compiles for the device at hand and keeps compiled. PTX for sm_80 also runs on every newer
device; PTX for sm_90a runs on compute capability 9.0 alone. A driver takes seconds to compile PTX, once. Machine code
saves these seconds, where there is an assembler to make it. Wheels contain all files. An editable installation does not
build them (setup.py), because most machines have no GPU.

setup.py runs it before the package is installed, so it uses only the standard library.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
LIBRARY_FOLDER = HERE / "lib"
SOURCES = HERE.parents[3] / "csrc" / "cuda"
"""The folder of all native code for CUDA. It includes headers of the CPU's kernels; those headers include none of its
files."""
HEADERS = (SOURCES / "include",)
CHIPS = ("sm_80", "sm_90a")
"""The chips of the PTX that is shipped: one for every chip from sm_80 on, and one only for H100, H200 and similar
chips."""
ASSEMBLED = {"sm_80": "sm_80", "sm_86": "sm_80", "sm_89": "sm_80", "sm_90a": "sm_90a"}
"""Chips with machine code of their own (A100; RTX 30; RTX 40, L4; H100, H200), and the PTX from which it is made."""
KERNEL_FLAGS = (
    *("-O3", "-std=c++17", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-nostdinc++", "-Wall", "-Wextra"),
    "-fconvergent-functions",  # no call that may contain a barrier is moved into or out of a branch
    *("-Werror", "-Wno-unused-function", "-Wno-unused-command-line-argument"),
)


def cpu_build() -> ModuleType:
    """Returns the module build.py of the CPU's kernels, which has the compiler and the cache of compiled files.

    setup.py, which runs before anything is installed, has loaded it already under another name.
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
    """Returns PTX in which each mark that `at_most_threads` of simt.h leaves inside a kernel is a directive of that
    kernel. Outside of CUDA C++, clang has no attribute for this directive."""
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
    units = sorted((SOURCES / "host").glob("*.cpp"))
    triple = ("-target", base.TRIPLES[target])
    # Launches are compared as bytes, so the padding between the members of a kernel's arguments must be zero.
    own = ("-ftrivial-auto-var-init=zero", f"-mcpu={base.LEVELS[target]['generic']}")
    flags = (*base.FLAGS, *base.RELEASE, *triple, *own)
    cache, compiler = base.shared_cache(), base.zig()
    objects = base.compile_all(cache, compiler, [(unit, flags) for unit in units], more=HEADERS)
    made: Path = base.link(cache, compiler, objects, (*triple, "-nostdlib++", "-shared", "-s", "-ldl"), ".so")
    return made


def build_all(out: Path = LIBRARY_FOLDER, target: str | None = None, machine_code: Sequence[str] = ()) -> list[Path]:
    """Builds all files into `out`, and returns their paths. machine_code: chips, of ASSEMBLED. Raises RuntimeError."""
    base = cpu_build()
    out.mkdir(parents=True, exist_ok=True)
    built = {
        out / "libtwostroke_cuda.so": build_host(target or base.machine()),
        **{out / f"kernels_{chip}.ptx": compile_ptx(chip) for chip in CHIPS},
        **{out / f"kernels_{chip}.cubin": assemble(chip) for chip in machine_code},
    }
    for old in out.glob("*.cubin"):  # old files were made from other sources
        old.unlink()
    for path, made in built.items():
        path.write_bytes(made.read_bytes())
    return list(built)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description="Compile the CUDA backend.")
    parser.add_argument("--out", type=Path, default=LIBRARY_FOLDER)
    parser.add_argument("--machine-code", nargs="*", default=(), choices=ASSEMBLED, help="chips; needs ptxas")
    asked = parser.parse_args(arguments)
    try:
        for path in build_all(asked.out, machine_code=asked.machine_code):
            print(path)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
