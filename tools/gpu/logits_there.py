"""Rows of logits that are already on a device, for tests of the sampler that works on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from twostroke.backends.cuda.device import CudaDevice
from twostroke.backends.cuda.limits import ASKED_BYTES
from twostroke.ops.step_memory import StepSizes

USED = 100
"""The bytes of the step's own inputs. The number is no multiple of a cache line."""


class LogitsThere:
    """Satisfies runner.device.sampler.SamplingForward. logits (R, V): the logits of the only step. read: the number of
    rows that were copied to the host."""

    def __init__(self, device: CudaDevice, logits: np.ndarray, asked_bytes: int = ASKED_BYTES) -> None:
        rows, vocabulary = logits.shape
        apart = np.full((rows, vocabulary + 3), np.float32(7e7))  # what lies between rows is not theirs
        apart[:, :vocabulary] = logits
        self._device, self._logits = device, device.put(apart)[:, :vocabulary]
        self._host, self.asked_bytes, self.read = logits, asked_bytes, 0
        self._inputs = device.inputs(USED)

    def sampled(self, asked: Any, lists: np.ndarray, told: Any, sizes: StepSizes) -> None:
        """See SamplingForward."""
        assert sizes.logit_rows == len(told)
        where = self._device.upload(self._inputs, USED, np.concatenate([asked.view(np.uint8), lists]))
        self._device.sample(self._logits, where, asked.itemsize, told)

    def scored(self, rows: np.ndarray, asked: Any, told: Any, sizes: StepSizes) -> None:
        """See SamplingForward. The rows must be neighbours."""
        assert len(rows) == rows[-1] - rows[0] + 1 == len(told)
        where = self._device.upload(self._inputs, USED, asked.view(np.uint8))
        self._device.sample(self._logits[int(rows[0]) : int(rows[-1]) + 1], where, asked.itemsize, told)

    def logits(self, rows: np.ndarray, sizes: StepSizes) -> np.ndarray:
        """See SamplingForward."""
        self.read += len(rows)
        return self._host[rows]

    def logits_at(self, begin: int, end: int) -> np.ndarray:
        """See SamplingForward."""
        self.read += end - begin
        return self._host[begin:end]
