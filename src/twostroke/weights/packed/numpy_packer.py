"""The packer without native code: the codec of quant/, in NumPy. It is slow, and serves tests and machines where no
kernel library loads."""

from __future__ import annotations

import numpy as np

from twostroke.ops.operands import F32Array, U8Array, U16Array, bf16_to_f32
from twostroke.ops.quant.codec import pack_weight
from twostroke.types.errors import CorruptModel
from twostroke.types.spec.formats import WeightFormat, WeightKind
from twostroke.weights.tensor_source import LIMIT, SourceArray


class NumpyPacker:
    """Rounds and packs matrices of floats with NumPy. Satisfies `rounded_packing.Packer`."""

    num_threads = 1
    block_types = frozenset[str]()

    def pack(self, source: SourceArray, weight_format: WeightFormat, data: U8Array, scales: U16Array | None) -> None:
        values: F32Array = bf16_to_f32(source.view(np.uint16)) if source.dtype == np.uint16 else source.view(np.float32)
        if not (np.abs(values) < LIMIT).all():
            raise CorruptModel("A weight is not finite or absurdly large.", fix="Download the checkpoint again.")
        packed = pack_weight(values, weight_format)
        data[:] = packed.data
        if scales is not None and packed.scales is not None:
            scales[:] = packed.scales.reshape(-1)

    def pack_blocks(self, block: str, raw: U8Array, columns: int, kind: WeightKind, data: U8Array) -> bool:
        """Raises NotImplementedError: this packer takes no blocks."""
        raise NotImplementedError(block)
