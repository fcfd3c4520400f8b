"""What transformers makes of a config: sizes, names and layers, without memory for weights. Its answers are kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import kept


@dataclass(frozen=True)
class Described:
    """written: the config as its file has it, and as a dict of all fields. architecture: the model's class. parameters:
    their number. shapes: the shapes of the tensors of its state. Three lists have a value for each layer, where the
    model has such layers. head_dims: the dimensions of a head; windows: 0 where a layer has none; sparse: whether it
    has experts."""

    written: list[dict[str, Any]]
    architecture: str
    parameters: int
    shapes: dict[str, tuple[int, ...]]
    head_dims: list[int]
    windows: list[int]
    sparse: list[bool]

    @property
    def config(self) -> dict[str, Any]:
        """All fields, those that were not given too."""
        return self.written[1]


def described(**config: Any) -> Described:
    """What transformers makes of these fields; `model_type` is one of them."""

    def ask(folder: Path) -> dict[str, Any]:
        import torch
        import transformers

        with torch.device("meta"):
            judge = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
        layers = getattr(getattr(judge, "model", None), "layers", ())
        found = {
            "written": [json.loads(judge.config.to_json_string()), judge.config.to_dict()],
            "architecture": type(judge).__name__,
            "parameters": judge.num_parameters(),
            "shapes": {name: list(tensor.shape) for name, tensor in judge.state_dict().items()},
            "head_dims": [layer.self_attn.head_dim for layer in layers],
            "windows": [getattr(layer.self_attn, "sliding_window", None) or 0 for layer in layers],
            "sparse": [hasattr(getattr(layer, "mlp", None), "experts") for layer in layers],
        }
        return {"said": kept.text(found)}

    said = kept.value_of(kept.made(("described", sorted(config.items())), ask).answers()["said"])
    return Described(**{**said, "shapes": {name: tuple(shape) for name, shape in said["shapes"].items()}})
