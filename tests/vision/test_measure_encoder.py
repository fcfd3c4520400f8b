"""The tool that measures encoders keeps what it has measured, whatever fails after it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tools.encoder_peers import Peer

if TYPE_CHECKING:
    from tools.measure_encoder import Figures

ASKED = argparse.Namespace(layers=(1, 2), rounds=1, clock_threads=1)


def test_the_shapes_after_one_that_fails_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from tools import measure_encoder
    from tools.measure_encoder import SHAPES, EncoderShape, Measured, measure_shapes

    def found(shape: EncoderShape, layers: int, _asked: argparse.Namespace) -> dict[str, Measured]:
        if shape.layers == 3:
            raise ValueError("no such layer")
        return {"ours": Measured(1.0 + layers, 0.5, 0), "only with few" if layers == 1 else "": Measured(1.0, 0.0, 0)}

    tiny, kept = SHAPES["tiny"], dict[str, "list[Figures]"]()
    monkeypatch.setattr(measure_encoder, "measured", found)
    bad = EncoderShape(tiny.family, tiny.size, tiny.arch, tiny.word, 3)
    shapes = {"first": tiny, "second": bad, "third": tiny}
    assert measure_shapes(shapes, ASKED, {"f32": 1.0, "int8": 1.0}, kept.__setitem__) == ["second"]
    assert list(kept) == ["first", "third"]
    assert [each.engine for each in kept["third"]] == ["ours"]
    assert kept["first"][0].whole_s == 1.0 + tiny.layers


def test_an_engine_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tools import measure_encoder
    from tools.measure_encoder import SHAPES, Measured, Way, measured

    law, ends = np.array([[0.0, 2.0]], np.float32), iter([1.0])

    def dies() -> float:
        found = next(ends, None)
        if found is None:
            raise RuntimeError("a peer has ended")
        return found

    ways = [Way("a", dies, lambda: law), Way("b", lambda: 2.0, lambda: law + 1)]
    monkeypatch.setattr(measure_encoder, "expected", lambda *_: law)
    monkeypatch.setattr(measure_encoder, "ways_of", lambda *_: ways)
    assert measured(SHAPES["tiny"], 1, ASKED) == {"b": Measured(2.0, 0.5, 0)}
    assert "a fails with 1 layers: a peer has ended" in capsys.readouterr().out


def test_a_peer_that_ends_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    """Closing it raises nothing, so the figures of other engines are kept."""
    with Peer(Path(sys.executable), "raise SystemExit('no such file')", tmp_path, {}) as peer:
        peer._process.wait()
        with pytest.raises(RuntimeError, match=r"a peer has ended:\nno such file"):
            peer.encode()
