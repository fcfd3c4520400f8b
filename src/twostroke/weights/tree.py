"""The packed weights of a model, as the model program reads them.

Knows: which operands a model of the Llama family has.
Must not know: where they came from, who multiplies with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.ops.operands import F32Array, PackedWeight, U8Array
from twostroke.spec.model import ModelSpec


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One layer. qkv: rows of q, k and v one after another, bias included. gate_up: all gate rows, then all up rows.

    attn_norm, mlp_norm: (hidden,) float32. q_norm, k_norm: (head_dim,) float32, or None.
    """

    attn_norm: F32Array
    qkv: PackedWeight
    q_norm: F32Array | None
    k_norm: F32Array | None
    o: PackedWeight
    mlp_norm: F32Array
    gate_up: PackedWeight
    down: PackedWeight


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """A model. `head` is `embedding` itself, the same object, where they are tied. final_norm: (hidden,) float32.

    mapped: the bytes of the file that all of them are views of, where they are.
    """

    embedding: PackedWeight
    layers: tuple[LayerWeights, ...]
    final_norm: F32Array
    head: PackedWeight
    mapped: U8Array | None = None


def build_tree(spec: ModelSpec, matrices: Mapping[str, PackedWeight], vectors: Mapping[str, F32Array]) -> ModelWeights:
    """Put matrices and vectors, keyed as in weights/names.py, into their places."""
    layers = tuple(
        LayerWeights(
            attn_norm=vectors[f"layers.{i}.attn_norm"],
            qkv=matrices[f"layers.{i}.qkv"],
            q_norm=vectors[f"layers.{i}.q_norm"] if spec.qk_norm else None,
            k_norm=vectors[f"layers.{i}.k_norm"] if spec.qk_norm else None,
            o=matrices[f"layers.{i}.o"],
            mlp_norm=vectors[f"layers.{i}.mlp_norm"],
            gate_up=matrices[f"layers.{i}.gate_up"],
            down=matrices[f"layers.{i}.down"],
        )
        for i in range(spec.num_layers)
    )
    embedding = matrices["embedding"]
    head = embedding if spec.tied_embeddings else matrices["head"]
    return ModelWeights(embedding, layers, vectors["final_norm"], head)
