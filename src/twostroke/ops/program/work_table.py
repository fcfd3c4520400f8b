"""The WorkTable of a program: the sum of the costs of its calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeGuard

from twostroke.cost.work import Work
from twostroke.cost.work_table import AdapterBanks, ExpertBank, Products, SeenLayers, WorkTable
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import Op, OpCost, OpPart, StoredFormats
from twostroke.ops.program.values import ADAPTERS, LOGIT_ADAPTERS, Cache, PagedKV, Value, Weight
from twostroke.types.spec.formats import WeightKind


def work_table(model: Model, formats: StoredFormats) -> WorkTable:
    """Adds up the costs of the calls of a model's program in these formats."""
    body, head = model.program.body, model.program.head
    adapting = tuple(call for call in (*body, *head) if _has_adapters(call))
    body, head = (tuple(call for call in calls if not _has_adapters(call)) for calls in (body, head))
    layers, attention, other = (_sum(body, part, formats) for part in (OpPart.PRODUCT, OpPart.ATTENTION, OpPart.OTHER))
    logits, selected = (_sum(head, part, formats) for part in (OpPart.PRODUCT, OpPart.OTHER))
    return WorkTable(
        num_layers=model.num_layers,
        vocab_size=model.program.logits.width,
        kv_kind=formats.kv,
        weight_bytes=model.weight_bytes(formats.format_for),
        kv_token_bytes=model.kv_bytes_per_token(formats.kv),
        layers_once=layers.once,
        layers_row=layers.per_row,
        head_once=logits.once,
        head_row=logits.per_row,
        attention_row=attention.per_row,
        sequence=attention.per_sequence,
        other_once=other.once,
        other_row=other.per_row,
        selected_once=selected.once,
        selected_row=selected.per_row,
        seen=_seen(body, formats),
        layer_products=_products(body, formats),
        head_products=_products(head, formats),
        banks=tuple(_banks(body, formats)),
        heads=sum(kind.kv_heads for kind in model.paged_kinds),
        adapters=AdapterBanks(_sum(adapting, OpPart.PRODUCT, formats).per_row, tuple(_banks(adapting, formats)))
        if adapting
        else None,
        query_heads=sum(call.result.shape[0] for call, _ in _seeing(body, formats) if _has_heads(call.result)),
    )


def _has_adapters(call: Op) -> bool:
    return any(item is ADAPTERS or item is LOGIT_ADAPTERS for item in call.operands())


def _has_heads(value: Value | None) -> TypeGuard[Value]:
    return value is not None and len(value.shape) > 1


def _of(calls: Iterable[Op], part: OpPart) -> Iterator[Op]:
    return (call for call in calls if part is call.PART)


def _sum(calls: Iterable[Op], part: OpPart, formats: StoredFormats) -> OpCost:
    return sum((call.cost(formats) for call in _of(calls, part)), OpCost())


def _seeing(calls: Iterable[Op], formats: StoredFormats) -> Iterator[tuple[Op, OpCost]]:
    """Yields the calls of attention whose cost depends on how many positions of the KV cache they read, with their
    costs."""
    for call in _of(calls, OpPart.ATTENTION):
        cost = call.cost(formats)
        if cost.per_pair != Work() or cost.per_position != Work():
            yield call, cost


def _seen(calls: Iterable[Op], formats: StoredFormats) -> tuple[SeenLayers, ...]:
    """Returns the summed cost of attention for each window that layers of the program have, in the order of their first
    use."""
    found: dict[int, OpCost] = {}
    for call, cost in _seeing(calls, formats):
        kinds = [item.kind for item in call.operands() if isinstance(item, Cache)]
        window = next(kind.window for kind in kinds if isinstance(kind, PagedKV))
        found[window] = found.get(window, OpCost()) + cost
    return tuple(
        SeenLayers(window, cost.per_pair.flops, cost.per_position.kv_bytes, cost.per_later.flops)
        for window, cost in found.items()
    )


def _products(calls: Iterable[Op], formats: StoredFormats) -> tuple[Products, ...]:
    found: dict[WeightKind, tuple[int, int]] = {}
    for call in _of(calls, OpPart.PRODUCT):
        for weight in call.operands():
            if isinstance(weight, Weight) and not weight.experts:
                kind = formats.format_for(weight).kind.arithmetic
                elements, features = found.get(kind, (0, 0))
                found[kind] = elements + weight.elements, features + weight.rows + weight.columns
    return tuple(Products(kind, *sums) for kind, sums in found.items())


def _banks(calls: Iterable[Op], formats: StoredFormats) -> Iterator[ExpertBank]:
    for call in _of(calls, OpPart.PRODUCT):
        chosen = call.experts_of_a_row
        for weight in call.operands():
            if isinstance(weight, Weight) and weight.experts:
                chosen_format = formats.format_for(weight)
                yield ExpertBank(
                    weight.experts,
                    chosen,
                    chosen_format.total_bytes(weight.rows, weight.columns),
                    chosen_format.kind.arithmetic,
                    weight.rows * weight.columns,
                    weight.rows + weight.columns,
                )
