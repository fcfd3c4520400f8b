"""Chooses the formats of matrices whose codes and scales are kept as a file has them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from twostroke.ops.operands import I32Array
from twostroke.ops.passes.column_orders import KeptOrder, OrderChoice
from twostroke.ops.program.model import Model
from twostroke.ops.program.values import Tensor, Weight
from twostroke.ops.stored_layout import holds_columns
from twostroke.types.spec.formats import BF16, F32, STORED_GROUP, WeightFormat, WeightKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.tensors import GgufTensor
from twostroke.weights.quantized.matrix import BankMatrix
from twostroke.weights.quantized.tensor import QuantizedTensor
from twostroke.weights.tensor_source import ORDER, TensorInfo
from twostroke.weights.tensors import with_prefix

HELD: tuple[tuple[WeightKind, frozenset[str]], ...] = tuple(
    (kind, frozenset(names.split()))
    for kind, names in (
        (WeightKind.AFFINE4_128, ""),
        (WeightKind.FLAT4, "Q1_0 Q2_0 Q4_0"),
        (WeightKind.FLAT4_IQ, "IQ4_NL"),
        (WeightKind.FLAT4_MIN, "Q4_1"),
        (WeightKind.E2M1_32, "MXFP4"),
        (WeightKind.AFFINE4_64, ""),
        (WeightKind.E2M1_16, "MXFP4 NVFP4"),
        (WeightKind.FLAT5, "Q1_0 Q2_0 Q4_0 Q5_0"),
        (WeightKind.FLAT5_MIN, "Q4_1 Q5_1"),
        (WeightKind.AFFINE4_32, ""),
        (WeightKind.AFFINE8_128, ""),
        (WeightKind.FLAT8, "Q1_0 Q2_0 Q4_0 Q5_0 Q8_0 IQ4_NL"),
        (WeightKind.FLAT8_MIN, "Q1_0 Q2_0 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL"),
        (WeightKind.SUPER2, "TQ1_0 TQ2_0"),
        (WeightKind.SUPER2_MIN, "Q2_K"),
        (WeightKind.SUPER3, "Q3_K TQ1_0 TQ2_0"),
        (WeightKind.SUPER4_IQ, "IQ4_XS"),
        (WeightKind.SUPER4_16, "Q3_K TQ1_0 TQ2_0"),
        (WeightKind.SUPER4_MIN, "Q4_K"),
        (WeightKind.SUPER4_MIN_16, "Q2_K Q4_K"),
        (WeightKind.SUPER5_MIN, "Q4_K Q5_K"),
        (WeightKind.SUPER6, "Q3_K Q6_K TQ1_0 TQ2_0"),
        (WeightKind.SUPER6_MIN, "Q2_K Q3_K Q4_K Q5_K Q6_K TQ1_0 TQ2_0"),
        (WeightKind.SUPER8, "Q3_K Q6_K IQ4_XS TQ1_0 TQ2_0"),
        (WeightKind.SUPER8_MIN, "Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS TQ1_0 TQ2_0"),
        (WeightKind.AFFINE8_64, ""),
        (WeightKind.AFFINE8_32, ""),
    )
)
"""The stored kinds, the smallest first, each with the block types of ggml that it keeps without loss. A matrix gets the
first kind that keeps the types of all its tensors. Matrices of other formats name such kinds themselves
(`TensorInfo.kinds`)."""


def stored_formats(checkpoint: Checkpoint) -> Callable[[tuple[Tensor, ...]], WeightFormat | None]:
    """Returns a function from the tensors of a matrix to the format that keeps them; its result is None where the
    checkpoint lacks one of them."""

    def choose(parts: tuple[Tensor, ...]) -> WeightFormat | None:
        if any(part.name not in checkpoint.names for part in parts):
            return None
        banks = [bank_of(part, checkpoint) for part in parts]
        for kind, _ in HELD:
            if all(bank is not None and kind in bank.bank_kinds for bank in banks):
                return WeightFormat(kind, STORED_GROUP)
        sought = [rows_in_file(part, checkpoint) for part in parts]
        kept = [_plain(part) or found is not None for part, found in zip(parts, sought, strict=True)]
        infos = [
            _of_rows(part, checkpoint) if found is None or found[0] is checkpoint.tensors[part.name] else found[0].info
            for part, found in zip(parts, sought, strict=True)
        ]
        return stored_format(infos, all(kept))

    return choose


def column_orders(checkpoint: Checkpoint) -> OrderChoice:
    """Returns a function that decides whether a matrix is kept with sorted columns. It takes the tensors of the matrix,
    and returns the format and the tensor that has the order of the columns. It returns None where the tensors have no
    common order, or where no packed kind holds all of them without loss."""

    def choose(parts: tuple[Tensor, ...]) -> KeptOrder | None:
        tensors = [checkpoint.tensors.get(part.name) for part in parts]
        moved = [each for each in tensors if isinstance(each, QuantizedTensor | GgufTensor)]
        if len(moved) != len(parts) or not all(map(_plain, parts)):
            return None
        orders = [order for order in (tensor.column_order for tensor in moved) if order is not None]
        if len(orders) != len(parts) or any(not np.array_equal(order, orders[0]) for order in orders):
            return None
        for kind, held in HELD:
            if all(_holds_ordered(kind, held, tensor) for tensor in moved):
                return KeptOrder(WeightFormat(kind, STORED_GROUP), parts[0].name + ORDER)
        return None

    return choose


def _holds_ordered(kind: WeightKind, held: frozenset[str], tensor: QuantizedTensor | GgufTensor) -> bool:
    if isinstance(tensor, QuantizedTensor):
        return kind in tensor.ordered_kinds
    turned = tensor.turned or tensor.elements or len(tensor.shape) != 2
    return not turned and held.issuperset(tensor.block_names) and holds_columns(kind, tensor.shape[-1])


def stored_format(infos: list[TensorInfo], plain: bool) -> WeightFormat:
    """Returns the format that keeps tensors of these types without loss; bf16, with loss, where there is none.

    plain: True where the matrix has the rows and columns in the order of the file. Only then can a stored kind be used.
    """
    types = {info.blocks or info.dtype for info in infos}
    if types == {"F32"}:
        return F32
    for kind, held in HELD:
        whole = all(holds_columns(kind, info.shape[-1]) for info in infos if info.shape)
        if plain and whole and all(_held(info, held) or kind in info.kinds for info in infos):
            return WeightFormat(kind, STORED_GROUP)
    return BF16


def expanded_sentence(model: Model, checkpoint: Checkpoint) -> str | None:
    """Returns a sentence about the matrices that could not be kept as the file has them, with memory and loss; None
    where all were kept."""
    expanded = [w for w in model.program.weights if w.stored == BF16 and _types(w, checkpoint) != {"BF16"}]
    if not expanded:
        return None
    before = sum(part_bytes(part, checkpoint) for weight in expanded for part in weight.parts)
    after = sum(weight.matrices * BF16.total_bytes(weight.rows, weight.columns) for weight in expanded)
    names = ", ".join(sorted(set().union(*(_types(weight, checkpoint) for weight in expanded))))
    return (
        f"{len(expanded)} of {len(model.program.weights)} matrices ({names}) are expanded to bf16:"
        f" {after / 1e6:,.0f} MB in place of {before / 1e6:,.0f} MB, each weight within 0.4% of the file's."
    )


def kept_sentence(model: Model, checkpoint: Checkpoint) -> str | None:
    """Returns a sentence that names the formats of the quantized matrices and the bits in which they are kept; None
    where there are no such matrices."""
    bits: dict[str, set[float]] = {}
    for weight in model.program.weights:
        for part in weight.parts:
            info = checkpoint.info(part.name) if part.name in checkpoint.names else None
            if info is not None and info.blocks and not checkpoint.is_gguf:
                kept = weight.stored.bits_per_weight if weight.stored and weight.stored.kind.is_stored else 0.0
                bits.setdefault(info.blocks, set()).add(kept)
    words = []
    for name, each in sorted(bits.items()):
        own = " or ".join(f"{number:.3g}" for number in sorted(each) if number)
        words.append(f"{name}: " + (f"kept as it is, {own} bits a weight" if own else "expanded to bf16"))
    return "Quantized weights: " + "; ".join(words) + "." if words else None


def tell_stored(model: Model, checkpoint: Checkpoint, report: Callable[[str], None]) -> None:
    """Reports how many bits the quantized matrices take in memory, and which matrices had to be expanded to bf16."""
    named = with_prefix(checkpoint, model)
    for sentence in (kept_sentence(model, named), expanded_sentence(model, named)):
        if sentence is not None:
            report(sentence)


def part_bytes(part: Tensor, checkpoint: Checkpoint) -> int:
    """Returns the bytes in the file of a part's tensor, or only those of the one matrix of a stack that the part uses.
    """
    info = checkpoint.info(part.name)
    return info.num_bytes if part.matrix is None else info.num_bytes // max(1, info.rows)


def bank_of(part: Tensor, checkpoint: Checkpoint) -> BankMatrix | None:
    """Returns the stack of transposed matrices to which a part belongs; None where there is none."""
    tensor = checkpoint.tensors.get(part.name)
    if not isinstance(tensor, QuantizedTensor) or not isinstance(tensor.matrix, BankMatrix):
        return None
    return tensor.matrix if part.transposed and part.matrix is not None and part.rows is None else None


def _held(info: TensorInfo, held: frozenset[str]) -> bool:
    return bool(info.blocks) and held.issuperset(info.blocks.split())


def rows_in_file(part: Tensor, checkpoint: Checkpoint) -> tuple[GgufTensor, I32Array] | None:
    """Returns the tensor of a GGUF file that stores a part's rows as whole rows, and the numbers of these rows there.
    Returns None where the part takes some columns only, where its rows are the file's columns, or where the file is not
    a GGUF file."""
    tensor = checkpoint.tensors[part.name]
    if not isinstance(tensor, GgufTensor) or tensor.elements or tensor.info.shape != part.shape:
        return None
    if any(source.turned for source in tensor.sources):
        return _rows_of_source(part, tensor)
    stacked = part.matrix is not None and len(part.shape) == 3
    if part.columns is not None or len(part.shape) != 2 + stacked or part.transposed != tensor.turned:
        return None
    rows = _chosen(part, tensor.matrix_rows)
    return tensor, rows + np.int32((part.matrix or 0) * tensor.matrix_rows)


def _rows_of_source(part: Tensor, tensor: GgufTensor) -> tuple[GgufTensor, I32Array] | None:
    """Does the work of `rows_in_file` for a tensor joined from several stored tensors, some of them transposed. Returns
    the one stored tensor with all rows of the part, and their numbers there; None where there is none."""
    if part.matrix is not None or part.transposed != (part.columns is not None):
        return None
    chosen = _chosen(part, tensor.matrix_rows) if part.columns is None else np.arange(*part.columns, dtype=np.int32)
    return tensor.in_one_source(chosen, part.transposed)


def _chosen(part: Tensor, matrix_rows: int) -> I32Array:
    """Returns the numbers of the rows that a part uses, within its tensor or its one matrix of a stack, in the part's
    order."""
    rows = np.arange(matrix_rows, dtype=np.int32)
    if part.order is not None:
        rows = rows[list(part.order.index)]
    return rows if part.rows is None else rows[slice(*part.rows)]


def _of_rows(part: Tensor, checkpoint: Checkpoint) -> TensorInfo:
    """Returns the info of a part's tensor as if it had the columns, along which its blocks lie, as its last axis."""
    info = checkpoint.info(part.name)
    if not part.transposed or len(info.shape) < 2:
        return info
    return replace(info, shape=(*info.shape[:-2], info.shape[-1], info.shape[-2]))


def _plain(part: Tensor) -> bool:
    return not part.transposed and part.rows is None and part.order is None and part.matrix is None


def _types(weight: Weight, checkpoint: Checkpoint) -> set[str]:
    infos = [checkpoint.info(part.name) for part in weight.parts]
    return {info.blocks or info.dtype for info in infos}
