"""The keys of one architecture in a GGUF file: each is read, known to change nothing, or refused by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.weights.gguf.container import StoredTensor
from twostroke.weights.gguf.header import Value, texts_of

MOST = 1 << 40
WITHOUT_EFFECT = frozenset(
    {
        *("tensor_data_layout", "vocab_size", "rope.scaling.finetuned"),
        *("pooling_type", "classifier.pooling_type", "classifier.output_labels"),
    }
)
"""Keys on which no layer depends. pooling.py reads pooling_type for every family."""
WITHOUT_NAME = ("xielu.",)
"""How keys of an architecture may begin that do not begin with its name."""
ONLY: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "use_parallel_residual": (False,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "expert_gating_func": (0, 1),
    "expert_weights_scale": (1.0,),
    "expert_weights_norm": (True,),
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_feed_forward_length": (0,),
    "nextn_predict_layers": (0,),
    "leading_dense_block_count": (0,),
    "logit_scale": (1.0,),
    "residual_scale": (1.0,),
    "embedding_scale": (1.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "rope.scaling.attn_factor": (1.0,),
}
"""Keys that only some families read. Each has the values at which it has no effect, and with these values any file may
have the key."""


class Keys:
    """The keys that begin with an architecture's name, and a record of the keys that were read."""

    def __init__(self, values: Mapping[str, Value], name: str, place: str, tensors: Mapping[str, StoredTensor]) -> None:
        self.prefix = name + "."
        self.place = place
        self._read: set[str] = set()
        self._values = {
            key.removeprefix(self.prefix): value
            for key, value in values.items()
            if key.startswith((self.prefix, *WITHOUT_NAME))
        }
        self.tensors = tensors

    def has(self, key: str) -> bool:
        """Returns whether the file has the key."""
        return key in self._values

    def has_tensor(self, stem: str) -> bool:
        """Returns whether the file or one of its layers has a tensor `stem`. stem: a name with its ending and without
        the layer, such as "attn_q.weight"."""
        ending = "." + stem
        return stem in self.tensors or any(name.endswith(ending) for name in self.tensors)

    def tensor_shape(self, stem: str) -> tuple[int, ...]:
        """Returns the shape of the tensor `stem` in the first layer that has it. stem: a name with its ending and
        without the layer, such as "attn_q.weight". Raises CorruptModel where there is none."""
        ending = "." + stem
        found = next((tensor for name, tensor in self.tensors.items() if name == stem or name.endswith(ending)), None)
        if found is None:
            raise CorruptModel(f"{self.place}: no layer has a {stem}.", fix="Download the file again.")
        return found.shape

    def text(self, key: str, absent: str) -> str:
        """Returns a text; `absent` where the file lacks the key."""
        self._read.add(key)
        found = self._values.get(key, absent)
        if not isinstance(found, str):
            raise self.wrong(key, "It must be a text.")
        return found

    def texts(self, key: str) -> list[str]:
        """Returns an array of texts; empty where the file has none."""
        self._read.add(key)
        return texts_of(self._values, key, self.place)

    def truth(self, key: str, absent: bool) -> bool:
        """Returns a truth value; `absent` where the file lacks the key."""
        self._read.add(key)
        found = self._values.get(key, absent)
        if not isinstance(found, bool):
            raise self.wrong(key, "It must be true or false.")
        return found

    def number(self, key: str, absent: float | None = None) -> Any:
        """Returns one number; an array is accepted where all its numbers are the same."""
        self._read.add(key)
        found = self._values.get(key, absent)
        if isinstance(found, np.ndarray) and len(found) and (found == found[0]).all():
            found = found[0].item()
        if isinstance(found, np.ndarray):
            raise UnsupportedModel(
                f"{self.place}: {self.prefix}{key} differs from layer to layer.",
                why="The layers of this family are all the same here.",
                fix="Use a model whose layers have one size.",
            )
        if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < MOST:
            raise self.wrong(key, "It must be a number.")
        return found

    def each(self, key: str, layers: int, absent: int = 0) -> list[int]:
        """Returns one whole number (or truth value) for each layer; a single value counts for all layers."""
        self._read.add(key)
        found = self._values.get(key, absent)
        if isinstance(found, int | float):
            found = np.full(layers, int(found))
        if not isinstance(found, np.ndarray) or found.ndim != 1 or len(found) < layers or found.dtype.kind not in "iub":
            raise self.wrong(key, f"It must be one number for each of the {layers} layers.")
        return [int(number) for number in found[:layers]]

    def floats(self, key: str, count: int) -> list[float]:
        """Returns an array of `count` numbers."""
        self._read.add(key)
        found = self._values.get(key)
        if not isinstance(found, np.ndarray) or found.shape != (count,) or found.dtype.kind not in "fiu":
            raise self.wrong(key, f"It must be {count} numbers.")
        return [float(number) for number in found]

    def integers(self, key: str) -> list[int]:
        """Returns an array of whole numbers, of any length."""
        self._read.add(key)
        found = self._values.get(key)
        if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "iu":
            raise self.wrong(key, "It must be whole numbers.")
        return [int(number) for number in found]

    def same(self, key: str, value: object) -> None:
        """Raises UnsupportedModel where the file has the key with a value other than `value`. A file without the key is
        accepted."""
        self._read.add(key)
        if self._values.get(key, value) != value:
            raise UnsupportedModel(
                f"{self.place}: {self.prefix}{key} is {str(self._values[key])[:40]}, not {value}.",
                why="Other values are not implemented for this family.",
                fix="Use a model in which this key has the implemented value.",
            )

    def ignore(self, *names: str) -> None:
        """Marks these keys as read: they repeat what other keys, or the tensors, contain."""
        self._read.update(names)

    def check(self) -> None:
        """Raises UnsupportedModel for a key that was not read, unless it is known to have no effect."""
        for key in sorted(self._values.keys() - self._read - WITHOUT_EFFECT):
            value = self._values[key]
            if key in ONLY and not isinstance(value, np.ndarray) and value in ONLY[key]:
                continue
            raise UnsupportedModel(
                f"{self.place}: {self.prefix}{key[:60]} = {str(value)[:40]} is not implemented.",
                why="It may change what the model computes.",
                fix="Use the model's original checkpoint, or another file of it.",
            )

    def wrong(self, key: str, why: str) -> CorruptModel:
        """Returns the error for an impossible value."""
        value = str(self._values.get(key))[:40]
        return CorruptModel(f"{self.place}: {self.prefix}{key} is {value}.", why=why, fix="Download the file again.")
