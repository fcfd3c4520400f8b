"""Judges whose processors of images need torchvision, imported without it; here Pillow resizes for them."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from transformers.image_processing_backends import TorchvisionBackend

_NAMES = ("torchvision", "torchvision.transforms", "torchvision.transforms.v2")
_STUBS = {name: ModuleType(name) for name in _NAMES}


def _pad(images: torch.Tensor, padding: list[int], fill: list[int]) -> torch.Tensor:
    """Padding as torchvision's, which gives left, top, right and bottom; here with zeros."""
    assert not any(fill)
    left, top, right, bottom = padding
    return torch.nn.functional.pad(images, (left, right, top, bottom))


_FUNCTIONAL = ModuleType("functional")
vars(_FUNCTIONAL)["pad"] = _pad
vars(_STUBS[_NAMES[-1]])["functional"] = _FUNCTIONAL


def judge_module(name: str) -> Any:
    """Imports a module of transformers whose functions that need torchvision are not called."""
    with mock.patch.dict(sys.modules, _STUBS):
        return import_module(f"transformers.models.{name}")


class ByPillow(TorchvisionBackend):
    """Resizes as Pillow does, because torchvision's filters differ by one step of 255 in places. A class has it after
    the judge's class, and an `__init__` of its own, which needs no torchvision."""

    def resize(self, image: torch.Tensor, size: Any, resample: Any = None, **more: Any) -> torch.Tensor:
        """See TorchvisionBackend."""
        pixels = Image.fromarray(image[0].permute(1, 2, 0).numpy())
        made = np.asarray(pixels.resize((size.width, size.height), Image.Resampling(resample)))
        return torch.from_numpy(made.copy()).permute(2, 0, 1)[None]

    def normalize(self, image: torch.Tensor, mean: Any, std: Any, **more: Any) -> torch.Tensor:
        """See TorchvisionBackend; torchvision's function has these two steps, in the type of the image."""
        own, other = (torch.as_tensor(each, dtype=image.dtype)[:, None, None] for each in (mean, std))
        return (image - own) / other

    def pad(self, image: torch.Tensor, pad_size: Any, **more: Any) -> torch.Tensor:
        """See TorchvisionBackend."""
        height, width = image.shape[-2:]
        return torch.nn.functional.pad(image, (0, pad_size.width - width, 0, pad_size.height - height))


def pixels_of(image: Image.Image) -> torch.Tensor:
    """The image as bytes (3, height, width)."""
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)
