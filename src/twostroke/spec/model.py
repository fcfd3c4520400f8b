"""ModelSpec: a model in numbers and flags, read from a Hugging Face config.json. Raw field names stand only in spec/.

One architecture covers the Llama family; what differs between its members is flags:

    LlamaForCausalLM    attention_bias, mlp_bias; every layer sees everything
    MistralForCausalLM  sliding_window for every layer
    Qwen2ForCausalLM    biases on q, k and v; layers from max_window_layers on slide where use_sliding_window
    Qwen3ForCausalLM    q and k norms, explicit head_dim, attention_bias; windows as Qwen2

Absent optional fields take the family's own default in transformers. Unknown fields are ignored.

Knows: shapes, flags, sizes in bytes.
Must not know: tensors, files, time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twostroke.spec.fields import Fields
from twostroke.spec.formats import KVKind, WeightFormat
from twostroke.spec.refused_fields import refuse_fields
from twostroke.spec.rope import MAX_POSITIONS, RopeSpec, rope_from_config
from twostroke.types.errors import CorruptModel, UnsupportedModel

DTYPES = ("float32", "bfloat16", "float16")


class MatrixRole(enum.StrEnum):
    """The matrices of a model; formats are chosen by role. A tied model has no HEAD: EMBEDDING serves as both."""

    EMBEDDING = "embedding"
    QKV = "qkv"
    O = "o"  # noqa: E741 - the field's own name for the output projection
    GATE_UP = "gate_up"
    DOWN = "down"
    HEAD = "head"


LAYER_ROLES = (MatrixRole.QKV, MatrixRole.O, MatrixRole.GATE_UP, MatrixRole.DOWN)

FormatChoice = Callable[[MatrixRole], WeightFormat]


@dataclass(frozen=True, slots=True)
class Family:
    """What transformers assumes for one architecture where config.json is silent."""

    model_type: str
    max_positions: int
    num_kv_heads: int | None
    sliding_window: int | None = None
    head_dim: int | None = None


FAMILIES = {
    "LlamaForCausalLM": Family("llama", 2048, None),
    "MistralForCausalLM": Family("mistral", 131_072, 8, sliding_window=4096),
    "Qwen2ForCausalLM": Family("qwen2", 32_768, 32, sliding_window=4096),
    "Qwen3ForCausalLM": Family("qwen3", 32_768, 32, sliding_window=4096, head_dim=128),
}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model of the Llama family.

    windows: one entry per layer, the positions a query sees, itself included; 0 means all. eos_token_ids may be empty.
    dtype: what the checkpoint says it was saved in, one of DTYPES.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_positions: int
    rms_norm_eps: float
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int, ...]
    rope: RopeSpec
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    dtype: str

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> ModelSpec:
        """Read a config.json. CorruptModel (impossible value) and UnsupportedModel (not implemented) name the field."""
        fields = Fields(config, "config.json")
        architecture = _architecture(fields)
        family = FAMILIES[architecture]
        refuse_fields(fields, architecture, family.model_type)
        _refuse_what_is_not_implemented(fields)
        vocab_size = fields.integer("vocab_size", 1, 1 << 24)
        hidden_size = fields.integer("hidden_size", 2, 1 << 17)
        num_layers = fields.integer("num_hidden_layers", 1, 4096)
        num_heads = fields.integer("num_attention_heads", 1, 4096)
        num_kv_heads = _num_kv_heads(fields, family, num_heads)
        head_dim = _head_dim(fields, family, hidden_size, num_heads)
        max_positions = fields.integer("max_position_embeddings", 1, MAX_POSITIONS, default=family.max_positions)
        llama, qwen2, qwen3 = (family.model_type == name for name in ("llama", "qwen2", "qwen3"))
        attention_bias = (llama or qwen3) and fields.boolean("attention_bias", False)
        eos_token_ids = tuple(i for i in fields.integers("eos_token_id") if 0 <= i < vocab_size)
        # Ids outside the vocabulary can be neither fed nor sampled; checkpoints use -1 for "none".
        bos_token_id = next((i for i in fields.integers("bos_token_id")[:1] if 0 <= i < vocab_size), None)
        return cls(
            architecture=architecture,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            intermediate_size=fields.integer("intermediate_size", 1, 1 << 20),
            max_positions=max_positions,
            rms_norm_eps=fields.number("rms_norm_eps", 1e-12, 0.1, default=1e-6),
            tied_embeddings=fields.boolean("tie_word_embeddings", False),
            qkv_bias=qwen2 or attention_bias,
            output_bias=attention_bias,
            mlp_bias=llama and fields.boolean("mlp_bias", False),
            qk_norm=qwen3,
            windows=_windows(fields, family, num_layers),
            rope=rope_from_config(fields, head_dim, max_positions),
            bos_token_id=bos_token_id,
            eos_token_ids=eos_token_ids,
            dtype=_dtype(fields),
        )

    @property
    def longest_context(self) -> int:
        """Positions that can be asked for: max_positions, or what its rope scaling reaches where that is more."""
        return max(self.max_positions, self.rope.reach)

    @property
    def query_size(self) -> int:
        """Elements of all query heads of one token."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Elements of all K heads (or all V heads) of one token."""
        return self.num_kv_heads * self.head_dim

    def matrix_shape(self, role: MatrixRole) -> tuple[int, int]:
        """(output features, input features)."""
        hidden, wide = self.hidden_size, self.intermediate_size
        return {
            MatrixRole.EMBEDDING: (self.vocab_size, hidden),
            MatrixRole.QKV: (self.query_size + 2 * self.kv_size, hidden),
            MatrixRole.O: (hidden, self.query_size),
            MatrixRole.GATE_UP: (2 * wide, hidden),
            MatrixRole.DOWN: (hidden, wide),
            MatrixRole.HEAD: (self.vocab_size, hidden),
        }[role]

    def has_bias(self, role: MatrixRole) -> bool:
        """Does this matrix come with a bias?"""
        return {
            MatrixRole.QKV: self.qkv_bias,
            MatrixRole.O: self.output_bias,
            MatrixRole.GATE_UP: self.mlp_bias,
            MatrixRole.DOWN: self.mlp_bias,
        }.get(role, False)

    def matrix_count(self, role: MatrixRole) -> int:
        """How many matrices have this role; the head of a tied model is counted as its embedding, once."""
        if role in LAYER_ROLES:
            return self.num_layers
        return 0 if role is MatrixRole.HEAD and self.tied_embeddings else 1

    def vector_elements(self) -> int:
        """Elements of all norms and biases."""
        norms = self.hidden_size * (2 * self.num_layers + 1)
        head_norms = 2 * self.head_dim * self.num_layers if self.qk_norm else 0
        biases = sum(self.matrix_shape(role)[0] for role in LAYER_ROLES if self.has_bias(role)) * self.num_layers
        return norms + head_norms + biases

    def parameters(self) -> int:
        """Trained numbers; tied embeddings are counted once."""
        matrices = 0
        for role in MatrixRole:
            rows, columns = self.matrix_shape(role)
            matrices += rows * columns * self.matrix_count(role)
        return matrices + self.vector_elements()

    def kv_bytes_per_token(self, kv_kind: KVKind) -> int:
        """Bytes of K and V of one position in all layers."""
        return self.num_layers * self.num_kv_heads * kv_kind.token_bytes(self.head_dim)

    def weight_bytes(self, format_for: FormatChoice) -> int:
        """Bytes of all packed weights: matrices in their formats with padding and scales, vectors as float32."""
        matrices = 0
        for role in MatrixRole:
            if self.matrix_count(role):
                matrices += format_for(role).total_bytes(*self.matrix_shape(role)) * self.matrix_count(role)
        return matrices + 4 * self.vector_elements()


def _architecture(fields: Fields) -> str:
    named = fields.texts("architectures")
    for name in named:
        if name in FAMILIES:
            return name
    model_type = fields.text("model_type", "")
    if not named:
        for name, family in FAMILIES.items():
            if family.model_type == model_type:
                return name
    raise UnsupportedModel(
        f"The architecture {', '.join(named)[:80] or model_type[:80] or 'of this model'} is not implemented.",
        why="config.json: architectures must name one of " + ", ".join(FAMILIES) + ".",
        fix="Use a model of the Llama, Mistral, Qwen2 or Qwen3 family.",
    )


def _refuse_what_is_not_implemented(fields: Fields) -> None:
    if fields.group("quantization_config") is not None:
        method = fields.values["quantization_config"].get("quant_method", "unnamed")
        raise UnsupportedModel(
            f"config.json: quantization_config: weights quantized by {str(method)[:40]!r} cannot be read yet.",
            why="Weights are read as float32, bfloat16 or float16 and quantized here, at load.",
            fix="Use the model's original checkpoint and choose --weights int8 or int4.",
        )
    activation = fields.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModel(
            f"config.json: hidden_act {activation[:40]!r} is not implemented.",
            why="The family's feed-forward block is silu(gate) * up.",
            fix="Use a model with hidden_act silu.",
        )


def _num_kv_heads(fields: Fields, family: Family, num_heads: int) -> int:
    absent = family.num_kv_heads if not fields.has("num_key_value_heads") else None
    num_kv_heads = fields.integer("num_key_value_heads", 1, 4096, default=absent or num_heads)
    if num_heads % num_kv_heads:
        raise CorruptModel(
            f"config.json: num_key_value_heads is {num_kv_heads}, num_attention_heads is {num_heads}.",
            why="Each KV head serves the same number of query heads, so the first must divide the second.",
            fix="Compare both with the model's original page.",
        )
    return num_kv_heads


def _head_dim(fields: Fields, family: Family, hidden_size: int, num_heads: int) -> int:
    head_dim = fields.optional_integer("head_dim", 2, 4096) or (None if fields.has("head_dim") else family.head_dim)
    if head_dim is None:
        if hidden_size % num_heads:
            raise fields.wrong("hidden_size", f"Without head_dim it must be a multiple of the {num_heads} heads.")
        head_dim = hidden_size // num_heads
    if head_dim % 2 or not 2 <= head_dim <= 4096:
        raise CorruptModel(
            f"config.json: heads have {head_dim} elements.",
            why="Rotary embeddings turn pairs: head_dim must be even, from 2 to 4,096.",
            fix="Compare head_dim, hidden_size and num_attention_heads with the model's original page.",
        )
    return head_dim


def _windows(fields: Fields, family: Family, num_layers: int) -> tuple[int, ...]:
    absent = None if fields.has("sliding_window") else family.sliding_window
    window = fields.optional_integer("sliding_window", 0, MAX_POSITIONS) or absent or 0
    if family.model_type == "llama":
        windows = (0,) * num_layers
    elif family.model_type == "mistral":
        if fields.values.get("sliding_window") == 0:
            raise fields.wrong("sliding_window", "A window of nothing has no meaning; null means no window.")
        windows = (window,) * num_layers
    else:
        window = window if fields.boolean("use_sliding_window", False) else 0
        full = fields.integer("max_window_layers", 0, 1 << 20, default=28)
        windows = tuple(window if layer >= full else 0 for layer in range(num_layers))
    types = fields.texts("layer_types")
    return _windows_of_types(fields, family, types, windows, window) if types else windows


def _windows_of_types(
    fields: Fields, family: Family, types: tuple[str, ...], windows: tuple[int, ...], window: int
) -> tuple[int, ...]:
    known = {"full_attention": 0, "sliding_attention": window}
    if family.model_type != "llama" and "sliding_attention" in types and not window:
        raise fields.wrong("layer_types", "It has sliding layers, and no sliding_window is in use.")
    if len(types) != len(windows) or any(name not in known for name in types):
        raise fields.wrong("layer_types", f"It must say full_attention or sliding_attention {len(windows)} times.")
    named = tuple(known[name] for name in types)
    if family.model_type in ("llama", "mistral") and named != windows:
        raise UnsupportedModel(
            f"config.json: layer_types mixes windows in a {family.model_type} model.",
            why="transformers ignores it for this architecture, other engines do not: what it means is not settled.",
            fix="Remove layer_types from config.json if every layer is meant to be the same.",
        )
    return named


def _dtype(fields: Fields) -> str:
    """The saved dtype; bfloat16 where config.json is silent (nothing depends on it but the default of --weights)."""
    word = fields.text("dtype", fields.text("torch_dtype", "bfloat16")).removeprefix("torch.")
    if word not in DTYPES:
        raise UnsupportedModel(
            f"config.json: dtype {word[:40]!r} is not implemented.",
            why="Weights are read as " + ", ".join(DTYPES) + ".",
            fix="Convert the checkpoint to bfloat16 with the tools that made it.",
        )
    return word
