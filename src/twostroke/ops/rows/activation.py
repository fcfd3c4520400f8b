"""The activation functions that ops know, by their number in the native ABI.

    silu       x / (1 + exp(-x))                                        (Elfwing et al. 2017)
    gelu       x * (1 + erf(x / sqrt(2))) / 2                            (Hendrycks and Gimpel 2016)
    gelu_tanh  x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2       (the same, its approximation)
    relu       max(x, 0)
    relu2      max(x, 0)^2                                               (So et al. 2021)
    sigmoid    1 / (1 + exp(-x))
    identity   x
    quick_gelu x / (1 + exp(-1.702 x))                                  (the same, another approximation)
    softplus   log(1 + exp(x))                                          (Dugas et al. 2000)
    exp        exp(x)
"""

from __future__ import annotations

import enum
import math

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array


class Activation(enum.IntEnum):
    """The number of each activation function, as native code knows it."""

    SILU = 0
    GELU = 1
    GELU_TANH = 2
    RELU = 3
    RELU2 = 4
    SIGMOID = 5
    IDENTITY = 6
    QUICK_GELU = 7
    SOFTPLUS = 8
    EXP = 9


FLOPS = 5
"""The FLOPs that are counted for one element, for every function."""

HF_NAMES = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_python": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_fast": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "quick_gelu": Activation.QUICK_GELU,
    "relu": Activation.RELU,
    "relu2": Activation.RELU2,
}
"""The activation for each name in Hugging Face configs."""

_erf = np.vectorize(math.erf, otypes=[np.float64])


def activated(x: F32Array | NDArray[np.float64], activation: int) -> NDArray[np.float64]:
    """Returns the activation function with the number `activation` of each element, in float64. Raises ValueError for
    another number."""
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        if activation == Activation.SILU:
            found = wide / (1.0 + np.exp(-wide))
        elif activation == Activation.GELU:
            found = wide * (1.0 + _erf(wide / math.sqrt(2.0))) / 2.0 if wide.size else wide
        elif activation == Activation.GELU_TANH:
            found = wide * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (wide + 0.044715 * wide**3))) / 2.0
        elif activation in (Activation.RELU, Activation.RELU2):
            found = np.maximum(wide, 0.0) ** (2 if activation == Activation.RELU2 else 1)
        elif activation == Activation.SIGMOID:
            found = 1.0 / (1.0 + np.exp(-wide))
        elif activation == Activation.IDENTITY:
            found = wide
        elif activation == Activation.QUICK_GELU:
            found = wide / (1.0 + np.exp(-1.702 * wide))
        elif activation == Activation.SOFTPLUS:
            found = np.logaddexp(0.0, wide)
        elif activation == Activation.EXP:
            found = np.exp(wide)
        else:
            raise ValueError(f"there is no activation {activation}")
    return np.asarray(found, np.float64)
