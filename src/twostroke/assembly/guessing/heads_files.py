"""Opens the files of speculative heads and draft layers (Medusa, EAGLE, MTP), compares their tensors with what their
program reads, and loads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from twostroke.assembly.settings.resolver import Resolved
from twostroke.backends.cpu import NativePacker
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import format_choice
from twostroke.types.errors import ConfigError, ModelError
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.tensors import wanted_tensors


@contextmanager
def errors_of(what: str) -> Iterator[None]:
    """Turns a ModelError inside the block into a ConfigError that names the option or the folder."""
    try:
        yield
    except ModelError as error:
        raise ConfigError(f"{what}: {error.what}", why=error.why, fix=error.fix) from None


def open_heads(folder: Path, name: str, option: str) -> Checkpoint:
    """Opens the folder's file `name`, or model.safetensors without such a file. Raises ConfigError or ModelError."""
    pickled = sorted(path.name for path in folder.glob("*.pt")) + sorted(path.name for path in folder.glob("*.bin"))
    if not (folder / name).exists() and pickled and not any(folder.glob("*.safetensors")):
        raise ConfigError(
            f"{option}: the folder holds {pickled[0]}, but no {name}.",
            why="Only safetensors are read: files of PyTorch can run code.",
            fix=f"If you trust it, convert it: safetensors.torch.save_file(torch.load('{pickled[0]}'), '{name}').",
        )
    return Checkpoint.open(folder, name if (folder / name).exists() else None)


def check_sizes(checkpoint: Checkpoint, own: Model, option: str, spec: Model) -> None:
    """Raises ConfigError that names the first tensor that is missing or of another shape."""
    for tensor in wanted_tensors(own):
        found = checkpoint.info(tensor.name).shape if tensor.name in checkpoint.names else None
        if found == tensor.shape:
            continue
        is_there = f"has the shape {list(found)}, expected {list(tensor.shape)}" if found else "is missing"
        raise ConfigError(
            f"{option}: the tensor {tensor.name} {is_there}.",
            why=f"The model has hidden states of {spec.hidden_size:,} numbers and {spec.vocab_size:,} tokens.",
            fix="Use heads that were trained for this model, with their own config.json.",
        )


def load_heads(folder: Path, name: str | None, own: Model, settings: Resolved) -> ModelWeights:
    """Packs the weights of speculative heads or of a draft layer into memory, in the formats of the target model. name:
    the file's name; None where the folder is a checkpoint."""
    packer = NativePacker(settings.cpu.cpu_level, settings.cpu.threads, settings.cpu.cpus)
    with closing(packer), errors_of(str(folder)):
        with Checkpoint.open(folder) if name is None else open_heads(folder, name, folder.name) as checkpoint:
            return load_weights(checkpoint, own, format_choice(settings.model.weights), packer)
