"""Answers that are computed from the model's rows: vectors (after their Dense layers) and scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twostroke.server.answering.stream import Answer
from twostroke.server.api.shapes.retrieval import WholeShape
from twostroke.server.api.sse import line_json
from twostroke.server.calls import Call
from twostroke.server.parts import ServerParts


class ComputedAnswer(Answer):
    """An Answer that is computed and written as JSON in a worker thread: other clients' streams go on meanwhile."""

    def __init__(self, call: Call, shape: WholeShape, parts: ServerParts) -> None:
        super().__init__(call, shape, parts)
        self._rows, self._lanes = shape.rows, parts.admission.lanes

    async def _body(self, made: Callable[[], dict[str, Any]]) -> bytes:
        return await self._lanes.run(sum(map(len, self._rows)), lambda: line_json(made()))
