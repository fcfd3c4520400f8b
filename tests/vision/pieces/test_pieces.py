"""Encodes in pieces of rows: the bits are the same however they are cut, and no piece is longer than it may be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from tests.vision.folders import FAMILIES, picture, png, write_family
from tests.vision.predicted.costs import PartsCost, RowCost, encode_cost_of
from tests.vision.towers import found_encoder, open_encoder
from twostroke.assembly.images.encoder_format import EncoderFormat
from twostroke.backends.cpu import available_levels
from twostroke.cost import encode_pieces
from twostroke.cost.encode_cost import EncodeCost, PartCosts
from twostroke.cost.encode_pieces import EncodePiece
from twostroke.images.decoding.decoder import ImageDecoder, ImageLimits
from twostroke.images.eyes import Eyes
from twostroke.images.families.registry import read_processor, read_settings
from twostroke.images.parts import AskedImage
from twostroke.runner.images import image_encoder
from twostroke.runner.images.patch_layout import PatchLayout
from twostroke.types.encode import EncodePace, PieceKind
from twostroke.types.images import ImageTile, RowFold

SIZES = ((90, 31), (150, 140))


def tiles_of(folder: Path) -> tuple[np.ndarray, list[ImageTile]]:
    """Tiles of some pictures as the folder's family cuts them, and the meaning of their bytes."""
    sight = found_encoder(folder).sight
    processor = read_processor(sight.family, sight.tiling(64), read_settings(folder))
    eyes = Eyes(processor, ImageDecoder(ImageLimits()), sight.patching, sight.placeholder)
    try:
        found = [eyes.open(AskedImage(png(picture(*size)), False)).tiles[0] for size in SIZES]
    finally:
        eyes.close()
    return np.array(processor.values, np.float32), found


@pytest.mark.parametrize("name", FAMILIES)
def test_rows_have_the_same_bits_however_they_are_cut(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 1, 5, 32 and 50 rows, and different ones in turn, at the best level, which has the most kernels."""
    write_family(name, tmp_path)
    values, tiles = tiles_of(tmp_path)
    for weights in ("f32", "int8"):
        with open_encoder(tmp_path, available_levels()[-1], values, form=EncoderFormat.next_to(weights)) as encoder:
            whole = [encoder.encode(tile) for tile in tiles]
            for most in (1, 5, 32, 50):
                monkeypatch.setattr(encode_pieces, "LEAST_ROWS", min(most, 32))
                for tile, law in zip(tiles, whole, strict=True):
                    assert np.array_equal(encoder.encode(tile, most), law), (weights, most)
            monkeypatch.setattr(encode_pieces, "LEAST_ROWS", 1)
            encoder.begin(tiles[1])
            turn = 0
            while (made := encoder.take_rows()) is None:
                turn = turn % 37 + 3
                encoder.advance(turn)
            assert np.array_equal(made, whole[1])


def test_pixels_become_rows_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the whole tile is one piece: the arrays between bytes and rows have a bounded size."""
    write_family("qwen2.5-vl", tmp_path)
    values, tiles = tiles_of(tmp_path)
    made: list[int] = []
    for name in ("patches", "places"):
        whole = getattr(PatchLayout, name)

        def noted(own: PatchLayout, tile: ImageTile, rows: slice, whole: Any = whole) -> np.ndarray:
            found: np.ndarray = whole(own, tile, rows)
            made.append(len(found))
            return found

        monkeypatch.setattr(PatchLayout, name, noted)
    monkeypatch.setattr(image_encoder, "FILLED_ROWS", 16)
    with open_encoder(tmp_path, available_levels()[0], values) as encoder:
        encoder.encode(tiles[1])
    assert max(made) == 16 and sum(made) >= 4 * tiles[1].rows


def test_a_tile_given_up_leaves_nothing_in_the_next_one(tmp_path: Path) -> None:
    write_family("qwen2.5-vl", tmp_path)
    values, tiles = tiles_of(tmp_path)
    with open_encoder(tmp_path, available_levels()[0], values) as encoder:
        law = encoder.encode(tiles[0])
        encoder.begin(tiles[1])
        for _ in range(5):
            encoder.advance(32)
        assert np.array_equal(encoder.encode(tiles[0], 32), law)


COST = encode_cost_of(PartsCost(2.0, 0.01), 4, layers=2)
"""Two seconds for each row of patches and of the head, and one for each row of the products between two layers."""


def pieces(most_s: float) -> list[EncodePiece]:
    walk, found = COST.walk(100), []
    while (piece := walk.take(most_s, least=True)) is not None:
        found.append(piece)
    assert walk.done
    return found


@pytest.mark.parametrize("most_s", [0.0, 30.0, 100.0, 1e9])
def test_pieces_cover_all_rows_and_take_no_longer_than_they_may(most_s: float) -> None:
    found = pieces(most_s)
    P, A, H = PieceKind.PRODUCTS, PieceKind.ATTENTION, PieceKind.HEAD
    assert [each.kind for each in found if each.first == 0] == [PieceKind.PATCHES, A, P, A, P, H]
    for part in range(6):
        own = [each for each in found if each.part == part]
        assert [each.first for each in own] == [0, *(each.end for each in own[:-1])]
        assert own[-1].end == (100 if part == 5 else 400) and own[-1].ends_part
    for each in found:
        assert each.seconds <= most_s or each.end - each.first <= encode_pieces.LEAST_ROWS
    assert sum(each.seconds for each in found) == pytest.approx(COST.seconds(100), rel=0.01)
    assert COST.seconds(100) == pytest.approx(400 * 2 + 2 * (400 + 400 * 400 / 200) + 100 * 2, rel=0.01)


def test_a_piece_is_the_largest_that_fits() -> None:
    walk = COST.walk(100)
    first = walk.take(70.0, least=False)
    assert first is not None and first.end == 32
    assert walk.take(1.0, least=False) is None and not walk.done
    forced = walk.take(1.0, least=True)
    assert forced is not None and (forced.first, forced.end) == (32, 64)
    quick = EncodePace((0.25, 1.0, 1.0, 1.0, 1.0, 1.0))  # patches take a quarter of what is predicted
    paced = walk.take(70.0, least=False, pace=quick)
    assert paced is not None and (paced.first, paced.end, paced.seconds) == (64, 192, 256.0)


def test_rows_of_a_window_see_the_window_alone() -> None:
    costs = PartCosts(*[PartsCost(2.0, 0.01)] * 3)
    cost = EncodeCost(costs, 4, layers=3, window=64, whole=frozenset({1}))
    walk, kinds = cost.walk(100), []
    while (piece := walk.take(1e9, least=True)) is not None:
        kinds.append(piece.kind)
    assert [each for each in kinds[1:] if each is not PieceKind.PRODUCTS] == [
        *(PieceKind.WINDOWS, PieceKind.ATTENTION, PieceKind.WINDOWS, PieceKind.HEAD)
    ]
    assert [walk.is_windowed(part) for part in range(7)] == [True, True, False, False, True, True, False]
    rows = 32
    assert cost.piece_s(PieceKind.WINDOWS, rows, 400) == pytest.approx(rows * 64 / 300, rel=0.02)
    assert cost.piece_s(PieceKind.ATTENTION, rows, 400) == pytest.approx(rows * 400 / 300, rel=0.02)


def test_after_a_fold_there_are_fewer_rows() -> None:
    """A fold after the second of three layers leaves a quarter of the rows, and its part has a cost of its own."""
    costs = PartCosts(*[PartsCost(3.0, 0.01)] * 3, PartsCost(7.0, 0.0))
    cost = EncodeCost(costs, 16, layers=3, window=4, whole=frozenset({0, 2}), fold=RowFold(1, 2))
    walk, rows = cost.walk(100), []
    while (piece := walk.take(1e9, least=True)) is not None:
        rows.append((piece.kind, piece.rows))
    A, W, P = PieceKind.ATTENTION, PieceKind.WINDOWS, PieceKind.PRODUCTS
    first = [(PieceKind.PATCHES, 1600), (A, 1600), (P, 1600), (W, 1600), (P, 1600)]
    assert rows == [*first, (PieceKind.FOLD, 400), (A, 400), (P, 400), (PieceKind.HEAD, 100)]
    pairs = (1600 * 1600 + 1600 * 4 + 400 * 400) / 3
    products = 1600 * 3 + (2 * 1600 + 400) * 1 + 400 * 7 + 100 * 3
    assert cost.seconds(100) == pytest.approx(products + 0.01 * pairs, rel=0.01)


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="the system knows no niceness")
def test_the_process_that_opens_images_stands_back() -> None:
    decoder = ImageDecoder(ImageLimits())
    try:
        with decoder._lock:
            process = decoder._started()
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, own + 5)
    finally:
        decoder.close()


def test_what_the_host_writes_of_a_patch_is_predicted() -> None:
    """It counts with the first part, and with no other."""
    usual = encode_cost_of(RowCost(0.0, 1.0, 0.0), 4, layers=2)
    written = structs.replace(usual, written_s=0.5)
    for kind in (PieceKind.PATCHES, PieceKind.PRODUCTS, PieceKind.HEAD):
        more = written.piece_s(kind, 64, 64) - usual.piece_s(kind, 64, 64)
        assert more == (32 if kind is PieceKind.PATCHES else 0)
