"""The CUDA backend: kernels started through the driver's library, with nothing else installed.

Nothing of it has run on a GPU yet: docs/gpu.md.

Knows: one device.
Must not know: models, requests.
"""

from __future__ import annotations

from twostroke.backends.cuda.device import CudaDevice, CudaForward

__all__ = ["CudaDevice", "CudaForward"]
