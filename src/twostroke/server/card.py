"""Facts about the served model that lists of models show: its family, its size, its shape."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from twostroke.weights.gguf.block_types import file_type
from twostroke.weights.hub.hub import ModelFolder


class Counted(Protocol):
    """A model that knows how many parameters it has."""

    def parameters(self) -> int:
        """Returns the number of parameters."""


class ModelCard(msgspec.Struct, frozen=True):
    """The facts of a model that APIs show. family: the model type in config.json. parameters: the number of parameters.
    num_bytes: the bytes of the weights in memory. weights: the weight format in memory. file: the format of the model's
    files, safetensors or gguf. quantization: the file type of GGUF files whose weights are kept as they are, or else
    the weight format in memory. shape: numbers of config.json under GGUF's names. digest: a digest of the model and its
    format. license: the text of the license, or ""."""

    family: str = ""
    parameters: int = 0
    num_bytes: int = 0
    weights: str = ""
    file: str = "safetensors"
    quantization: str = ""
    shape: Mapping[str, int] = msgspec.field(default_factory=dict)
    digest: str = "0" * 64
    license: str = ""

    @property
    def parameter_size(self) -> str:
        """The number of parameters as text, such as "1.2B", "135M"."""
        if self.parameters >= 1e9:
            return f"{self.parameters / 1e9:.1f}B"
        return f"{self.parameters / 1e6:.0f}M" if self.parameters >= 1e6 else f"{self.parameters / 1e3:.0f}K"


_SHAPE = {
    "context_length": ("max_position_embeddings", "n_positions", "n_ctx"),
    "embedding_length": ("hidden_size", "n_embd", "d_model"),
    "block_count": ("num_hidden_layers", "n_layer", "num_layers"),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.head_count_kv": ("num_key_value_heads", "num_attention_heads", "n_head"),
    "vocab_size": ("vocab_size",),
}
_LICENSES = ("LICENSE", "LICENSE.txt", "LICENSE.md")
MAX_LICENSE_BYTES = 64 * 1024


def card_of(folder: ModelFolder, name: str, weights: str, model: Counted, num_bytes: int) -> ModelCard:
    """Returns the card of a model's folder. A field about which nothing is known is empty."""
    config = _config(folder.path)
    inner = config.get("text_config")
    fields = {**config, **inner} if isinstance(inner, dict) else config
    shape = {
        ours: value
        for ours, theirs in _SHAPE.items()
        if isinstance(value := next((fields[each] for each in theirs if each in fields), None), int)
    }
    parameters = model.parameters()
    digest = hashlib.sha256("\0".join((name, weights, str(parameters), str(sorted(shape.items())))).encode())
    family = fields.get("model_type") or config.get("model_type") or ""
    kept = file_type(folder.headers[0].values) if folder.headers and weights == "stored" else ""
    return ModelCard(
        family=str(family),
        parameters=parameters,
        num_bytes=num_bytes,
        weights=weights,
        file="gguf" if folder.headers else "safetensors",
        quantization=kept or weights.upper(),
        shape=shape,
        digest=digest.hexdigest(),
        license=_license(folder.path),
    )


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _license(folder: Path) -> str:
    for name in _LICENSES:
        try:
            return (folder / name).read_bytes()[:MAX_LICENSE_BYTES].decode("utf-8", errors="replace")
        except OSError:
            continue
    return ""
