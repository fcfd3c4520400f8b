"""Times of pieces of encodes are learned for each kind of piece alone."""

from __future__ import annotations

from twostroke.engine.scheduler.estimates.piece_times import UNMEASURED, PieceTimes
from twostroke.types.encode import PieceKind, PieceTime


def test_each_kind_is_learned_for_itself() -> None:
    times = PieceTimes()
    assert set(times.pace().factors) == {UNMEASURED}
    times.learn([PieceTime(PieceKind.ATTENTION, 1.0, 0.1)] * 3 + [PieceTime(PieceKind.PRODUCTS, 1.0, 2.0)] * 3)
    pace = times.pace()
    kinds = PieceKind.ATTENTION, PieceKind.PRODUCTS, PieceKind.HEAD
    assert [pace.of(kind) for kind in kinds] == [0.1, 2.0, UNMEASURED]
    assert times.usual_s({PieceKind.ATTENTION: 10.0, PieceKind.PRODUCTS: 1.0}) == 3.0


def test_a_kind_that_was_not_measured_takes_the_median_of_the_others() -> None:
    times = PieceTimes()
    assert times.usual_s({PieceKind.HEAD: 2.0}) == 2.0
    for kind, seconds in ((PieceKind.PATCHES, 3.0), (PieceKind.ATTENTION, 0.5), (PieceKind.PRODUCTS, 2.0)):
        times.learn([PieceTime(kind, 1.0, seconds)] * 3)
    assert times.usual_s({PieceKind.HEAD: 2.0}) == 4.0


def test_one_slow_piece_changes_no_pace() -> None:
    times = PieceTimes()
    times.learn([PieceTime(PieceKind.HEAD, 1.0, 1.0)] * 9 + [PieceTime(PieceKind.HEAD, 1.0, 50.0)])
    assert times.pace().of(PieceKind.HEAD) == 1.0


def test_pieces_without_a_time_or_a_prediction_are_ignored() -> None:
    times = PieceTimes()
    times.learn([PieceTime(PieceKind.HEAD, 0.0, 1.0), PieceTime(PieceKind.HEAD, 1.0, 0.0)])
    assert times.pace().of(PieceKind.HEAD) == UNMEASURED
