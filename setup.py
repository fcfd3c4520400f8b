"""Builds the native kernels into the package before setuptools collects it; everything else stands in
pyproject.toml."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

BACKENDS = Path(__file__).resolve().parent / "src/twostroke/backends"


def load_build(backend: str, name: str) -> ModuleType:
    """build.py of one backend. Raises RuntimeError with the reason."""
    path = BACKENDS / backend / "build.py"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise RuntimeError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look themselves up there
    specification.loader.exec_module(module)
    return module


def build_kernels(editable: bool) -> None:
    """Run the builds for this architecture; an editable installation needs what this machine runs best. Raises
    RuntimeError with the reason."""
    module = load_build("cpu", "twostroke_native_build")
    folder, target = module.LIBRARY_FOLDER, module.machine()
    levels = module.levels_for("best" if editable else "all", folder, target)
    module.build_all(folder, target, levels=levels)
    if not editable:
        cuda = load_build("cuda", "twostroke_cuda_build")
        cuda.build_all(machine_code=cuda.chips_of_wheels(), is_packed=True)


class BuildWithKernels(build_py):
    """Compile first, so that the libraries are there as package data."""

    def run(self) -> None:
        """Build the kernels, then copy the package. An editable installation leaves CUDA out, and the levels of other
        CPUs: backends/cuda/build.py and backends/cpu/build.py make them."""
        build_kernels(self.editable_mode)
        super().run()


class PlatformWheel(bdist_wheel):
    """One wheel for a platform and every Python: the libraries are loaded with ctypes, not linked to Python."""

    def finalize_options(self) -> None:
        """The wheel is not pure."""
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        """py3-none-<platform>."""
        return "py3", "none", super().get_tag()[2]


class WithLibraries(Distribution):
    """Tells setuptools that there is native code without any extension module."""

    def has_ext_modules(self) -> bool:
        """Always: the libraries."""
        return True


setup(cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel}, distclass=WithLibraries)
