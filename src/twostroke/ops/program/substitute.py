"""Substitution: replaces a value, and all views of it, in calls that read it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from twostroke.ops.program.op import Op, OperandKind, signature
from twostroke.ops.program.values import Value


class Substitution:
    """Replaces the value `old` by `new` in calls. Views of `old` become views of `new`."""

    def __init__(self, old: Value, new: Value) -> None:
        self._made: dict[Value, Value] = {old: new}

    def replace_too(self, old: Value, new: Value) -> None:
        """Replaces one more value from now on. Call it before `value` or `call` meets `old` or a view of it."""
        self._made[old] = new

    def value(self, value: Value) -> Value:
        """Returns what stands for `value` after the replacement: `new` for `old`, a view of `new` for a view of `old`,
        and other values as they are. The same value always gives the same object."""
        known = self._made.get(value)
        if known is None:
            base = None if value.base is None else self.value(value.base)
            parts = tuple(map(self.value, value.parts))
            same = base is value.base and all(map(lambda a, b: a is b, parts, value.parts))
            known = self._made[value] = value if same else structs.replace(value, base=base, parts=parts)
        return known

    def call(self, call: Op) -> Op:
        """Returns the call with its values replaced."""
        changed: dict[str, Any] = {}
        for operand in signature(type(call)):
            item = getattr(call, operand.name)
            if operand.kind is OperandKind.VALUE and item is not None and self.value(item) is not item:
                changed[operand.name] = self.value(item)
        return replace(call, **changed) if changed else call  # type: ignore[type-var]
