"""Tensor names of Hugging Face checkpoints of the Llama family, and the matrices that they are put together to.

Knows: names, shapes, the order of fused rows: q, k, v; gate, up.
Must not know: how numbers are stored or packed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from twostroke.spec.model import MatrixRole, ModelSpec
from twostroke.types.errors import CorruptModel
from twostroke.weights.checkpoint import Checkpoint

HARMLESS = re.compile(r"(.*\.)?rotary_emb\.(inv_freq|cos_cached|sin_cached)")
"""Buffers that old checkpoints carry and that are computed anew."""


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor that must exist, with its shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MatrixSource:
    """A packed matrix: its key in our tree, and the tensors whose rows it is made of, in order; bias parts likewise."""

    key: str
    role: MatrixRole
    parts: tuple[Part, ...]
    bias_parts: tuple[Part, ...] = ()

    @property
    def rows(self) -> int:
        """Output features."""
        return sum(part.shape[0] for part in self.parts)

    @property
    def columns(self) -> int:
        """Input features."""
        return self.parts[0].shape[1]


@dataclass(frozen=True, slots=True)
class VectorSource:
    """A norm: its key in our tree, and the tensor it is read from."""

    key: str
    part: Part


Source = MatrixSource | VectorSource


def sources(spec: ModelSpec) -> tuple[Source, ...]:
    """Everything that is read from a checkpoint, in the order of use."""
    return tuple(_sources(spec))


def checked_sources(checkpoint: Checkpoint, spec: ModelSpec) -> tuple[Source, ...]:
    """`sources`, after names and shapes in the checkpoint were compared with it; raises CorruptModel that names one."""
    wanted = sources(spec)
    parts = [part for source in wanted for part in _parts(source)]
    present = checkpoint.names
    missing = [part.name for part in parts if part.name not in present]
    if missing:
        raise _missing(missing, len(parts), spec)
    for part in parts:
        found = checkpoint.info(part.name).shape
        if found != part.shape:
            raise CorruptModel(
                f"Tensor {part.name} has the shape {list(found)}, expected {list(part.shape)}.",
                why="The expected shape follows from config.json.",
                fix="config.json and the weights belong to different models or revisions: download both again.",
            )
    unexpected = sorted(present - {part.name for part in parts} - _ignored(present, spec))
    if unexpected:
        raise CorruptModel(
            f"The checkpoint holds {len(unexpected)} tensors that a {spec.architecture} with this config.json"
            f" does not have: {', '.join(name[:80] for name in unexpected[:3])}.",
            why="Leaving weights out would change what the model says.",
            fix="Check attention_bias, mlp_bias, num_hidden_layers in config.json; merge adapters first.",
        )
    return wanted


def _sources(spec: ModelSpec) -> Iterator[Source]:
    hidden, wide, kv_size = spec.hidden_size, spec.intermediate_size, spec.kv_size
    yield MatrixSource(
        "embedding", MatrixRole.EMBEDDING, (Part("model.embed_tokens.weight", (spec.vocab_size, hidden)),)
    )
    for i in range(spec.num_layers):
        ours, theirs = f"layers.{i}.", f"model.layers.{i}."
        attention, mlp = theirs + "self_attn.", theirs + "mlp."
        yield VectorSource(ours + "attn_norm", Part(theirs + "input_layernorm.weight", (hidden,)))
        outputs = (
            (attention + "q_proj", spec.query_size),
            (attention + "k_proj", kv_size),
            (attention + "v_proj", kv_size),
        )
        yield _fused(spec, ours, MatrixRole.QKV, outputs, hidden)
        if spec.qk_norm:
            yield VectorSource(ours + "q_norm", Part(attention + "q_norm.weight", (spec.head_dim,)))
            yield VectorSource(ours + "k_norm", Part(attention + "k_norm.weight", (spec.head_dim,)))
        yield _fused(spec, ours, MatrixRole.O, ((attention + "o_proj", hidden),), spec.query_size)
        yield VectorSource(ours + "mlp_norm", Part(theirs + "post_attention_layernorm.weight", (hidden,)))
        yield _fused(spec, ours, MatrixRole.GATE_UP, ((mlp + "gate_proj", wide), (mlp + "up_proj", wide)), hidden)
        yield _fused(spec, ours, MatrixRole.DOWN, ((mlp + "down_proj", hidden),), wide)
    yield VectorSource("final_norm", Part("model.norm.weight", (hidden,)))
    if not spec.tied_embeddings:
        yield MatrixSource("head", MatrixRole.HEAD, (Part("lm_head.weight", (spec.vocab_size, hidden)),))


def _fused(
    spec: ModelSpec, ours: str, role: MatrixRole, outputs: tuple[tuple[str, int], ...], columns: int
) -> MatrixSource:
    parts = tuple(Part(f"{name}.weight", (rows, columns)) for name, rows in outputs)
    biases = tuple(Part(f"{name}.bias", (rows,)) for name, rows in outputs) if spec.has_bias(role) else ()
    return MatrixSource(ours + role, role, parts, biases)


def _parts(source: Source) -> tuple[Part, ...]:
    return (source.part,) if isinstance(source, VectorSource) else source.parts + source.bias_parts


def _ignored(present: frozenset[str], spec: ModelSpec) -> set[str]:
    ignored = {name for name in present if HARMLESS.fullmatch(name)}
    # A spec is tied only where the head is the embedding, bit by bit (weights/tied.py).
    return ignored | {"lm_head.weight"} if spec.tied_embeddings else ignored


def _missing(missing: list[str], wanted: int, spec: ModelSpec) -> CorruptModel:
    fix = "Download the model again; if that does not help, config.json does not belong to these weights."
    if missing == ["lm_head.weight"]:
        fix = "If the head is the embedding in this model, config.json must say tie_word_embeddings: true."
    return CorruptModel(
        f"The checkpoint lacks the tensor {missing[0]}.",
        why=f"{len(missing)} of the {wanted} tensors of a {spec.architecture} with this config.json are not there.",
        fix=fix,
    )
