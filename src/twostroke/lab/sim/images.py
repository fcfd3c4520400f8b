"""Images in a simulation: each prompt begins with some of its own, whose encodes take their predicted seconds."""

from __future__ import annotations

from dataclasses import replace

from msgspec import Struct

from twostroke.cost.encode_cost import EncodeCost
from twostroke.engine.executor import Executor
from twostroke.lab.sim.clock import VirtualClock
from twostroke.types.images import PIECES_S, ImageSpan, ImageTile
from twostroke.types.plan import Plan
from twostroke.types.request import Request
from twostroke.types.result import StepResult

KEYS_OF_ONE = 1 << 16


class SimulatedImages(Struct, frozen=True):
    """rows: the image rows of each part of a prompt's images. tokens: all of them, with the marks around. cost: what
    encodes cost. pieces: how many pieces an encode has."""

    rows: tuple[int, ...]
    tokens: int
    cost: EncodeCost
    pieces: int

    def shown_by(self, request: Request) -> Request:
        """The request with images of its own at the beginning of its prompt; as it is where they do not fit."""
        if len(request.prompt_token_ids) <= self.tokens:
            return request
        spans, at = [], 0
        for place, rows in enumerate(self.rows):
            tile = ImageTile(-1 - KEYS_OF_ONE * request.seed - place, 1, rows, 0, 0, b"")
            spans.append(ImageSpan(at, tile))
            at += rows
        return replace(request, images=tuple(spans))


class EncodingExecutor:
    """Satisfies engine.executor.Executor: before what `own` does, the time of encodes passes."""

    def __init__(self, own: Executor, images: SimulatedImages, clock: VirtualClock) -> None:
        self._own, self._images, self._clock = own, images, clock
        self._left: dict[int, float] = {}

    def execute(self, plan: Plan) -> StepResult:
        """Pieces of the tile that the plan names, and all of those whose positions it computes."""
        done: set[int] = set()
        spent_s = 0.0 if plan.encode is None else self._work(plan.encode, done)
        for planned in plan.sequences:
            for span in planned.request.images:
                if span.first < planned.end and planned.start < span.end and self._left.get(span.tile.key) != 0.0:
                    spent_s += self._left.get(span.tile.key, self._images.cost.seconds(span.tile.rows))
                    self._left[span.tile.key] = 0.0
                    done.add(span.tile.key)
        self._clock.advance(spent_s)
        result = self._own.execute(plan)
        if not spent_s:
            return result
        return replace(result, encoded=frozenset(done), encode_s=spent_s, model_s=result.model_s + spent_s)

    def _work(self, tile: ImageTile, done: set[int]) -> float:
        whole_s = self._images.cost.seconds(tile.rows)
        left_s = self._left.get(tile.key, whole_s)
        piece_s, spent_s = whole_s / self._images.pieces, 0.0
        while spent_s < left_s:
            spent_s = min(left_s, spent_s + piece_s)
            if spent_s >= PIECES_S:
                break
        self._left[tile.key] = left_s - spent_s
        if spent_s >= left_s:
            done.add(tile.key)
        return spent_s
