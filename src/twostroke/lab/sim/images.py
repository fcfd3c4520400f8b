"""Images in a simulation: each prompt begins with images of its own, whose encodes take their predicted seconds."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from math import inf

from msgspec import Struct

from twostroke.cost.encode_cost import EncodeCost
from twostroke.cost.encode_pieces import EncodePiece, EncodeWalk
from twostroke.engine.executor import Executor
from twostroke.lab.sim.clock import VirtualClock
from twostroke.types.encode import AS_PREDICTED, EncodePace, PieceTime
from twostroke.types.images import EncodedTiles, ImageSpan, ImageTile
from twostroke.types.plan import Plan
from twostroke.types.request import Request
from twostroke.types.result import StepResult

KEYS_OF_ONE = 1 << 16


class SimulatedImages(Struct, frozen=True):
    """The images of each prompt. rows: the number of image rows of each part that is encoded separately. tokens: the
    number of all image rows and of the marks around them. cost: the cost of encodes, piece by piece. row_bytes: the
    bytes of an image row on its way to another replica."""

    rows: tuple[int, ...]
    tokens: int
    cost: EncodeCost
    row_bytes: int = 0

    def shown_by(self, request: Request) -> Request:
        """Returns the request with images, which no other request has, at the beginning of its prompt. A prompt that is
        too short for the images is returned unchanged."""
        if len(request.prompt_token_ids) <= self.tokens:
            return request
        spans, at = [], 0
        for place, rows in enumerate(self.rows):
            tile = ImageTile(-1 - KEYS_OF_ONE * request.seed - place, 1, rows, 0, 0, b"")
            spans.append(ImageSpan(at, tile))
            at += rows
        return replace(request, images=tuple(spans))


class EncodingExecutor:
    """Satisfies engine.executor.Executor. Adds the simulated encoding of images to another executor, `own`: the clock
    first advances by the time of the encodes that a plan needs, then `own` executes the plan. known: the keys of the
    image tiles that another replica has encoded, so that they take no time here."""

    def __init__(self, own: Executor, images: SimulatedImages, clock: VirtualClock, known: Container[int] = ()) -> None:
        self._own, self._images, self._clock, self._known = own, images, clock, known
        self._walks: dict[int, EncodeWalk] = {}

    def execute(self, plan: Plan) -> StepResult:
        """Encodes pieces of the tile that the plan names, and all of each tile whose positions the plan computes; then
        executes the plan."""
        taken = list[PieceTime]()
        done: set[int] = set()
        if plan.encode is not None:
            self._work(plan.encode, plan.encode_s, taken, done, plan.encode_pace)
        for planned in plan.sequences:
            for span in planned.request.images:
                if span.first < planned.end and planned.start < span.end:
                    self._work(span.tile, inf, taken, done)
        spent_s = sum(piece.seconds for piece in taken)
        self._clock.advance(spent_s)
        result = self._own.execute(plan)
        if not taken:
            return replace(result, encodes=EncodedTiles(frozenset(done))) if done else result
        encodes = EncodedTiles(frozenset(done), spent_s, tuple(taken))
        return replace(result, encodes=encodes, model_s=result.model_s + spent_s)

    def _time(self, piece: EncodePiece) -> PieceTime:
        """Returns the time of a piece, which is the predicted time."""
        return PieceTime(piece.kind, piece.seconds, piece.seconds)

    def _work(
        self,
        tile: ImageTile,
        most_s: float,
        taken: list[PieceTime],
        done: set[int],
        pace: EncodePace = AS_PREDICTED,
    ) -> None:
        """Takes pieces of a tile that take at most most_s seconds together; at least one piece. pace: the ratio of a
        piece's real time to its predicted time."""
        if tile.key in self._known:
            done.add(tile.key)
            return
        walk = self._walks.setdefault(tile.key, self._images.cost.walk_of(tile))
        left_s, least = most_s, True
        while (piece := walk.take(left_s, least=least, pace=pace)) is not None:
            taken.append(self._time(piece))
            left_s, least = left_s - piece.seconds * pace.of(piece.kind), False
            if walk.done:
                done.add(tile.key)
