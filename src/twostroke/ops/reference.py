"""The reference backend: every op by its definition."""

from __future__ import annotations

from collections.abc import Callable

from twostroke.ops.program.op import completed
from twostroke.ops.registry import registry


class ReferenceOps:
    """Runs every op by its reference, slowly. Its results define the ops. `ops.rms_norm(out, x, weight, eps)` calls the
    reference of that op, and so on."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        op = registry().get(name)
        if op is None:
            raise AttributeError(name)
        return lambda *arrays: op.reference(*completed(op, arrays))
