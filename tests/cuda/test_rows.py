"""Ops of rows and RWKV's scans in the emulator: bit for bit as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda.same_bits import same_bits
from tests.cuda.test_states import ROWS, SLOTS, batch, numbers
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice


def unusual(x: np.ndarray) -> np.ndarray:
    """Rows of which one is tiny, one has an infinity and one is not finite at all."""
    found = x.copy()
    found[1] *= np.float32(1e-8)
    found[2, 0], found[3, -1] = np.inf, np.nan
    return found


@pytest.mark.parametrize("width", [1, 40, 300])
def test_rows(cpu: CpuOps, gpu: CudaDevice, width: int) -> None:
    x, like = numbers(7, width), numbers(7, width, seed=1)
    same_bits(cpu, gpu, "gaussian_cut", (x, 1.2))
    same_bits(cpu, gpu, "match_rms", (x, like, 1e-5))
    same_bits(cpu, gpu, "round_rows", (np.zeros_like(x), unusual(x)), tolerance=None)
    heads = unusual(x).reshape(7, 1, width)
    for inverse in (0, 1):
        same_bits(cpu, gpu, "rotate_heads", (np.zeros_like(heads), heads, inverse), tolerance=None)
    same_bits(cpu, gpu, "scale_columns", (x, numbers(width, seed=2)))
    same_bits(cpu, gpu, "scale_columns", (x, numbers(1, seed=3)))
    same_bits(cpu, gpu, "xielu", (3 * x, np.array([0.3, -0.2, 0.5, -1e-6], np.float32)))


@pytest.mark.parametrize(("made", "read", "width"), [(1, 1, 1), (4, 1, 40), (3, 4, 300)])
def test_streams(cpu: CpuOps, gpu: CudaDevice, made: int, read: int, width: int) -> None:
    base, x = numbers(5, made, width), numbers(5, read, width, seed=1)
    weights = numbers(5, made * read, seed=2)
    same_bits(cpu, gpu, "mix_streams", (np.zeros_like(base), base, x, weights, 1.0))


@pytest.mark.parametrize(("ways", "width"), [(1, 1), (5, 40), (2, 300)])
def test_token_shift(cpu: CpuOps, gpu: CudaDevice, ways: int, width: int) -> None:
    out, x = np.zeros((ROWS, ways * width), np.float32), numbers(ROWS, width)
    operands = (out, x, numbers(ways * width, seed=1), numbers(5, width, seed=2), SLOTS, batch())
    same_bits(cpu, gpu, "token_shift", operands, (0, 3))


@pytest.mark.parametrize(("heads", "width"), [(1, 1), (2, 20), (1, 130)])
def test_scans_of_rwkv(cpu: CpuOps, gpu: CudaDevice, heads: int, width: int) -> None:
    r, w, k, v, a = (numbers(ROWS, heads, width, seed=seed) for seed in range(5))
    vectors = [numbers(heads * width, seed=5 + seed) for seed in range(5)]
    state, out = numbers(5, heads * width * width, seed=11), np.zeros_like(v)
    six = (out, r, w, k, v, *vectors[:3], state, SLOTS, batch(), 1e-5)
    same_bits(cpu, gpu, "wkv6", six, (0, 8), 1e-3)
    seven = (out, r, w, k, v, a, *vectors, state, SLOTS, batch(), 1e-5)
    same_bits(cpu, gpu, "wkv7", seven, (0, 11), 1e-3)


@pytest.mark.parametrize(("made", "read", "width"), [(1, 4, 1), (4, 1, 40), (3, 5, 300)])
def test_weighed_streams(cpu: CpuOps, gpu: CudaDevice, made: int, read: int, width: int) -> None:
    out, x, weights = np.zeros((5, made, width), np.float32), numbers(5, read, width), numbers(5, made * read, seed=1)
    same_bits(cpu, gpu, "weigh_streams", (out, x, weights))


@pytest.mark.parametrize(("streams", "rounds"), [(2, 1), (4, 20), (5, 3), (8, 2)])
def test_stream_shares(cpu: CpuOps, gpu: CudaDevice, streams: int, rounds: int) -> None:
    whole = (2 + streams) * streams
    x, base, factor = 3 * numbers(7, whole), numbers(whole, seed=1), numbers(3, seed=2)
    wild = x.copy()
    wild[3, -1], wild[4, 0], wild[5, 2 * streams] = np.nan, np.inf, -200.0
    for width, factors in ((whole, factor), (streams, factor[:1])):
        out, rest = np.zeros((7, width), np.float32), (base[:width], factors, streams, rounds, 1e-6)
        same_bits(cpu, gpu, "stream_shares", (out, x[:, :width], *rest))
        (found,) = same_bits(cpu, gpu, "stream_shares", (out, wild[:, :width], *rest), tolerance=None)
        assert np.isnan(found[3]).any() == (width == whole) and np.isfinite(found[5]).all()
