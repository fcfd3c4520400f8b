"""The CUDA backend: kernels started through the driver's library, with nothing else installed.

What ran on a GPU, and how fast: docs/gpu.md.
"""

from __future__ import annotations

from twostroke.backends.cuda.device import CudaDevice, CudaForward

__all__ = ["CudaDevice", "CudaForward"]
