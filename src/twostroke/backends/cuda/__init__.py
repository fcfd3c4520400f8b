"""The CUDA backend. Kernels are started through the driver's library, and nothing else must be installed.

docs/gpu.md tells what ran on a GPU, and how fast.
"""

from __future__ import annotations

from twostroke.backends.cuda.device import CudaDevice, CudaForward

__all__ = ["CudaDevice", "CudaForward"]
