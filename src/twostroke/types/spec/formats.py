"""Weight and KV formats and their sizes."""

from __future__ import annotations

import enum

from msgspec import Struct

PANEL_ROWS = 64
"""The number of output features in one packed panel: four AVX-512 registers of f32, 16 int8 quadruples each."""

STEP_COLUMNS = 64
"""Integer weights are padded to a multiple of this many columns: one step of a matrix tile, and 64 bytes of int8."""

MAX_GROUP_COLUMNS = 1024
"""The most columns of a group. A group of one panel, unpacked to bytes, still fits a second-level cache next to the
activations."""

STORED_GROUP = 256
"""The number of columns in a group of a stored kind: such weights keep a file's codes and are packed group by group."""

FINE_COLUMNS = 32
"""The number of columns of activations that share a scale with some stored kinds (such as Q8_0). Other programs, such
as llama.cpp, round activations for these kinds in blocks of 32 columns."""

SUBGROUP_COLUMNS = 16
"""The number of int4 columns that share a multiplier of their group's scale."""

ROTATED_COLUMNS = 64
"""The number of columns of a block that is rotated (ops/rotation.py). It is a step of packed weights, so every matrix
is padded to whole blocks anyway."""

PAGE_TOKENS = 16
"""The positions in one KV page: one AVX-512 register of f32 scores."""


class WeightKind(enum.IntEnum):
    """Element type of packed weights; the values are part of the native ABI and of the cache file."""

    F32 = 0
    BF16 = 1
    INT8 = 2
    INT4 = 3
    FLAT8 = 4
    FLAT4 = 5
    FLAT8_MIN = 6
    SUPER8 = 7
    SUPER8_MIN = 8
    SUPER4_MIN = 9
    AFFINE4_128 = 10
    AFFINE4_64 = 11
    AFFINE4_32 = 12
    AFFINE8_128 = 13
    AFFINE8_64 = 14
    AFFINE8_32 = 15
    E2M1_32 = 16
    E2M1_16 = 17
    SUPER4_16 = 18
    SUPER4_MIN_16 = 19
    SUPER5_MIN = 20
    SUPER6 = 21
    SUPER6_MIN = 22
    FLAT4_MIN = 23
    FLAT5 = 24
    FLAT5_MIN = 25
    FLAT4_IQ = 26
    SUPER4_IQ = 27
    SUPER2 = 28
    SUPER2_MIN = 29
    SUPER3 = 30

    @property
    def is_float(self) -> bool:
        """Whether the kind keeps floats; activations are then not rounded before a product."""
        return self in (WeightKind.F32, WeightKind.BF16)

    @property
    def is_stored(self) -> bool:
        """Whether the kind is a stored kind, which keeps the codes and scales of a file without rounding them again.
        ops/stored_layout.py has its layout."""
        return self >= WeightKind.FLAT8

    @property
    def is_super(self) -> bool:
        """Whether 256 columns share one scale, and each `step_columns` of them a whole-number multiplier of it."""
        return self in _SUPER

    @property
    def is_affine(self) -> bool:
        """Whether each `step_columns` neighbouring columns share a scale and a minimum, both float32."""
        return WeightKind.AFFINE4_128 <= self <= WeightKind.AFFINE8_32

    @property
    def is_e2m1(self) -> bool:
        """Whether the elements are the 4-bit floats of MXFP4 and NVFP4. Each `step_columns` columns share a float32
        scale."""
        return self in (WeightKind.E2M1_32, WeightKind.E2M1_16)

    @property
    def is_iq4(self) -> bool:
        """Whether the elements are numbers from the table of IQ4_NL and IQ4_XS."""
        return self in (WeightKind.FLAT4_IQ, WeightKind.SUPER4_IQ)

    @property
    def has_minimum(self) -> bool:
        """Whether each `step_columns` neighbouring columns share a minimum that is subtracted."""
        return self.is_affine or self in _MINIMA

    @property
    def has_wide_scales(self) -> bool:
        """Whether scales and minima of a stored kind are float32. Otherwise they are float16."""
        return self.is_affine or self.is_e2m1

    @property
    def has_nibbles(self) -> bool:
        """Whether the low 4 bits of two stored codes share a byte."""
        return self.is_e2m1 or self.is_iq4 or self in _NIBBLES or (self.high_bits > 0 and not self.is_plane)

    @property
    def is_plane(self) -> bool:
        """Whether a stored code has only 2 or 3 bits. Such codes are packed as other stored kinds pack the bits of a
        code above its low 4."""
        return self in (WeightKind.SUPER2, WeightKind.SUPER2_MIN, WeightKind.SUPER3)

    @property
    def has_thirds(self) -> bool:
        """Whether a code has 3 bits. The third bits lie in an array of their own, half as large as that of the first
        two."""
        return self is WeightKind.SUPER3

    @property
    def code_bits(self) -> int:
        """The number of bits of a stored code."""
        return self.high_bits + (4 if self.has_nibbles else int(self.has_thirds)) or 8

    @property
    def high_bits(self) -> int:
        """The number of bits of each stored code above its low 4. These bits lie in an array of their own (a plane)."""
        return _HIGH_BITS.get(self, 0)

    @property
    def step_columns(self) -> int:
        """The number of neighbouring columns of a row that share the finest scale of a stored kind. In SUPER kinds this
        finest scale is stored as an integer multiplier of a coarser scale."""
        return _STEPS.get(self, 32)

    @property
    def has_fine_activations(self) -> bool:
        """Whether the activations for weights of this kind have one scale for FINE_COLUMNS columns. Otherwise they have
        one for each group."""
        return self.is_stored and not self.is_super and not self.is_affine

    @property
    def arithmetic(self) -> WeightKind:
        """The kind whose products use the same instructions as products with this kind. Rates that were measured for it
        also hold for this kind."""
        return WeightKind.INT8 if self.is_stored else self


class KVKind(enum.IntEnum):
    """Element type of the KV cache; the values are part of the native ABI."""

    F32 = 0
    BF16 = 1
    INT8 = 2
    INT4 = 3

    @property
    def is_integer(self) -> bool:
        """Whether K and V are integers with one bf16 scale for each token and head."""
        return self in (KVKind.INT8, KVKind.INT4)

    def key_bytes(self, head_dim: int) -> int:
        """Returns the bytes of one position's K in one head, without its scale. They are padded to whole words of 4
        bytes."""
        word_elements = {KVKind.F32: 1, KVKind.BF16: 2, KVKind.INT8: 4, KVKind.INT4: 8}[self]
        return 4 * -(-head_dim // word_elements)

    def value_bytes(self, head_dim: int) -> int:
        """Returns the bytes of one position's V in one head, without its scale. int4: blocks of 32 dimensions, 16 bytes
        each."""
        if self is KVKind.INT4:
            return 16 * -(-head_dim // 32)
        return head_dim if self is KVKind.INT8 else self.key_bytes(head_dim)

    def token_bytes(self, head_dim: int, value_dim: int | None = None) -> int:
        """Returns the bytes of one position's K and V in one head, scales included. value_dim: the elements of V in one
        head; None where V has as many as K."""
        values = self.value_bytes(head_dim if value_dim is None else value_dim)
        return self.key_bytes(head_dim) + values + (4 if self.is_integer else 0)

    def latent_bytes(self, width: int) -> int:
        """Returns the bytes of one position's latent and of the rotary part of its key, `width` numbers together. They
        include two scales: one for the latent and one for the key."""
        return self.key_bytes(width) + (4 if self.is_integer else 0)


class WeightFormat(Struct, frozen=True):
    """An element type and, for the integer types, the number of columns that share a scale (`group`, 0 for floats).

    Integer kinds: group is a multiple of STEP_COLUMNS, at most MAX_GROUP_COLUMNS; the last group of a row may be
    shorter. INT8 with group 0: each column has one scale, and elements are laid out like those of F32. Only the stacked
    matrices of adapters have this form. rotated: the number of columns that are multiplied together by a Hadamard
    matrix before they are rounded, activations as well (ops/rotation.py); 0 for none. Activations of rotated kinds have
    one scale for a group.
    """

    kind: WeightKind
    group: int = 0
    rotated: int = 0

    @property
    def padding(self) -> int:
        """Columns are padded with zeros to a multiple of this number."""
        return STEP_COLUMNS if self.group else (2 if self.kind is WeightKind.BF16 else 1)

    @property
    def activation_columns(self) -> int:
        """The number of columns of activations that share a scale when they are rounded to int8; 0 for floats."""
        return FINE_COLUMNS if self.kind.has_fine_activations else self.group

    @property
    def bits_per_weight(self) -> float:
        """The bits of one weight with its share of scales and multipliers, without padding."""
        return _STORED_BITS_64[self.kind] / 64 + (16 / self.group if self.group and not self.kind.is_stored else 0)

    @property
    def keeps_codes(self) -> bool:
        """Whether the codes and scales are those of a file. Where columns are rotated, codes and scales were made when
        the weight was packed."""
        return self.kind.is_stored and not self.rotated

    @property
    def has_column_scales(self) -> bool:
        """Whether each column has one scale for all its rows."""
        return self.kind is WeightKind.INT8 and self.group == 0

    def padded_columns(self, columns: int) -> int:
        """Returns the number of columns stored for a matrix of `columns` input features."""
        return -(-columns // self.padding) * self.padding

    def num_groups(self, columns: int) -> int:
        """Returns the number of scales of one row; 0 for floats."""
        return -(-columns // self.group) if self.group else 0

    def data_bytes(self, rows: int, columns: int) -> int:
        """Returns the bytes of the packed elements of a (rows, columns) matrix, multipliers and stored scales included.
        """
        padded = self.padded_columns(columns)
        bits = padded * _STORED_BITS_64[self.kind] // 64
        if self.kind.is_super:  # add the scales of the columns that are missing in the last group
            bits += (-padded % STORED_GROUP) * 16 * (1 + self.kind.has_minimum) // STORED_GROUP
        return padded_rows(rows) * bits // 8

    def scale_bytes(self, rows: int, columns: int) -> int:
        """Returns the bytes of the bf16 scales of a (rows, columns) matrix; 0 for floats, and where the scales lie
        among the elements."""
        if self.has_column_scales:
            return columns * 2
        return 0 if self.kind.is_stored else padded_rows(rows) * self.num_groups(columns) * 2

    def total_bytes(self, rows: int, columns: int) -> int:
        """Returns the bytes that one pass over the matrix reads."""
        return self.data_bytes(rows, columns) + self.scale_bytes(rows, columns)


def padded_rows(rows: int) -> int:
    """Returns the number of output features stored for a matrix of `rows` output features."""
    return -(-rows // PANEL_ROWS) * PANEL_ROWS


_SUPER = tuple(kind for kind in WeightKind if kind.name.startswith("SUPER"))

_NIBBLES = (
    WeightKind.FLAT4,
    WeightKind.FLAT4_MIN,
    WeightKind.SUPER4_MIN,
    WeightKind.SUPER4_16,
    WeightKind.SUPER4_MIN_16,
    WeightKind.AFFINE4_128,
    WeightKind.AFFINE4_64,
    WeightKind.AFFINE4_32,
)

_HIGH_BITS = {
    WeightKind.FLAT5: 1, WeightKind.FLAT5_MIN: 1, WeightKind.SUPER5_MIN: 1,
    WeightKind.SUPER6: 2, WeightKind.SUPER6_MIN: 2, WeightKind.SUPER2: 2, WeightKind.SUPER2_MIN: 2,
    WeightKind.SUPER3: 2,
}  # fmt: skip

_MINIMA = (
    WeightKind.FLAT4_MIN,
    WeightKind.FLAT5_MIN,
    WeightKind.SUPER2_MIN,
    WeightKind.FLAT8_MIN,
    WeightKind.SUPER8_MIN,
    WeightKind.SUPER4_MIN,
    WeightKind.SUPER4_MIN_16,
    WeightKind.SUPER5_MIN,
    WeightKind.SUPER6_MIN,
)

_STEPS = {
    WeightKind.SUPER8: 16, WeightKind.SUPER8_MIN: 16, WeightKind.E2M1_16: 16, WeightKind.SUPER4_16: 16,
    WeightKind.SUPER2: 16, WeightKind.SUPER2_MIN: 16, WeightKind.SUPER3: 16, WeightKind.SUPER4_MIN_16: 16,
    WeightKind.SUPER6: 16, WeightKind.SUPER6_MIN: 16,
    WeightKind.AFFINE4_128: 128, WeightKind.AFFINE8_128: 128, WeightKind.AFFINE4_64: 64, WeightKind.AFFINE8_64: 64,
}  # fmt: skip

# The bits of 64 elements as they are stored. INT4 has four multipliers of 4 bits in addition.
_STORED_BITS_64 = {
    WeightKind.F32: 2048, WeightKind.BF16: 1024, WeightKind.INT8: 512, WeightKind.INT4: 272,
    WeightKind.FLAT8: 544, WeightKind.FLAT4: 288, WeightKind.FLAT8_MIN: 576,
    WeightKind.SUPER8: 548, WeightKind.SUPER8_MIN: 584, WeightKind.SUPER4_MIN: 296,
    WeightKind.AFFINE4_128: 288, WeightKind.AFFINE4_64: 320, WeightKind.AFFINE4_32: 384,
    WeightKind.AFFINE8_128: 544, WeightKind.AFFINE8_64: 576, WeightKind.AFFINE8_32: 640,
    WeightKind.E2M1_32: 320, WeightKind.E2M1_16: 384, WeightKind.SUPER4_16: 292, WeightKind.SUPER4_MIN_16: 328,
    WeightKind.SUPER5_MIN: 360, WeightKind.SUPER6: 420, WeightKind.SUPER6_MIN: 456,
    WeightKind.FLAT4_MIN: 320, WeightKind.FLAT5: 352, WeightKind.FLAT5_MIN: 384,
    WeightKind.FLAT4_IQ: 288, WeightKind.SUPER4_IQ: 276,
    WeightKind.SUPER2: 164, WeightKind.SUPER2_MIN: 200, WeightKind.SUPER3: 228,
}  # fmt: skip

F32 = WeightFormat(WeightKind.F32)
BF16 = WeightFormat(WeightKind.BF16)
COLUMNS8 = WeightFormat(WeightKind.INT8)
