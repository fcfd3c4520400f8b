"""SigLIP: an image encoder for square tiles, with a learned position embedding for each patch (Zhai et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import Patches, Tower, with_given_places, with_table
from twostroke.models.common.fields.fields import activation, head_dim, with_silent
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import ALL_AHEAD, Rope, Value
from twostroke.types.spec.fields import Fields

TOWER, PROJECTOR = "model.vision_tower.", "model.multi_modal_projector."
PREFIXES = (
    ("vision_tower.vision_model.", TOWER),
    ("model.vision_tower.vision_model.", TOWER),
    ("vision_tower.", TOWER),
    ("multi_modal_projector.", PROJECTOR),
)
"""How the names of the tower's and the projector's tensors begin in checkpoints of several versions, and how they begin
in this project."""
MOST_PIXELS = 4096
TABLE = "embeddings.position_embedding"
"""The name of the table of learned position embeddings, without ".weight"."""


@dataclass(frozen=True, slots=True)
class Siglip:
    """side, patch: the sides of a tile and of a patch, in pixels. turn: the rotation of heads by line and column of a
    patch. fitted: whether the learned position embeddings are interpolated to the grid of each tile and written before
    each step. flat: the matrix that multiplies pixels is stored as (width, pixels and colours), not as a kernel."""

    side: int
    patch: int
    width: int
    layers: int
    eps: float
    heads: Heads
    feed: Feed
    turn: Rope | None = None
    fitted: bool = False
    flat: bool = False

    @property
    def grid(self) -> int:
        """The number of patches along one side of a tile. Pixels that make no whole patch are left out, as by a
        convolution."""
        return self.side // self.patch

    def __call__(self, t: Tracer) -> Value:
        """Returns the rows of all patches after the last norm."""
        return self.norm(t, "post_layernorm", self.of_layers(t, self.of_patches(t)))

    @property
    def norm(self) -> Norm:
        """The norm of all blocks."""
        return Norm(self.eps, NormKind.LAYER)

    def of_patches(self, t: Tracer) -> Value:
        """Returns the rows of all patches before the first layer."""
        x = Patches(self.patch, self.width, "embeddings.patch_embedding", flat=self.flat)(t)
        return with_given_places(t, x) if self.fitted else with_table(t, x, TABLE, self.grid**2)

    @property
    def tower(self) -> Tower:
        """The transformer layers of the encoder, with the names of their tensors."""
        return Tower("encoder.layers.", self.layers, self.heads, self.feed, self.norm, turn=self.turn)

    def of_layers(self, t: Tracer, x: Value) -> Value:
        """Returns the rows after the last layer."""
        return self.tower(t, x)


def read_siglip(own: Fields, silent: Mapping[str, object]) -> Siglip:
    """Reads the tower that vision_config describes. silent: the family's defaults for fields that vision_config does
    not have."""
    own = with_silent(own, silent)
    wide, count = own.integer("hidden_size", 2, 1 << 17), own.integer("num_attention_heads", 1, 4096)
    heads = Heads(
        *(wide, count, count, head_dim(own, wide, count)),
        qkv_bias=True,
        output_bias=True,
        names=AttentionNames(o="self_attn.out_proj"),
        ahead=ALL_AHEAD,
    )
    inner = own.integer("intermediate_size", 1, 1 << 20)
    feed = Feed(wide, inner, activation(own, "hidden_act", ""), bias=True, gate="", up="mlp.fc1", down="mlp.fc2")
    return Siglip(
        own.integer("image_size", 1, MOST_PIXELS),
        own.integer("patch_size", 1, MOST_PIXELS),
        wide,
        own.integer("num_hidden_layers", 1, 4096),
        own.number("layer_norm_eps", 1e-15, 0.1),
        heads,
        feed,
    )
