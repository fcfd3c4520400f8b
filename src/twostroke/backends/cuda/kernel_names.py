"""Tells which kernel of the CUDA backend runs for which op. It asks the host library, which answers with the code that
chooses kernels. No driver and no device is needed."""

from __future__ import annotations

from pathlib import Path

from twostroke.backends.cuda import library as native
from twostroke.types.spec.formats import KVKind, WeightKind

LEVEL = "cuda"


class CudaKernels:
    """Tells which CUDA kernel runs for an op, a format and a number of rows. Satisfies
    `backends.cpu.kernel_table.KernelNames`. Raises BackendError where the backend was not built."""

    level = LEVEL

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or native.LIBRARY_FOLDER
        self._library, self._numbers = native.load_host_library(folder), native.cuda_op_numbers(folder)

    def kernel(self, op: str, weights: WeightKind, kv: KVKind, rows: int, head_dim: int) -> str | None:
        """Returns the kernel's name; None where an op has only one form, or no kernel."""
        if op not in self._numbers:
            return None
        found = self._library.ts_kernel(None, self._numbers[op], int(weights), int(kv), rows, head_dim)
        return None if found is None else str(found.decode())

    def close(self) -> None:
        """Does nothing, because no resource is held."""
