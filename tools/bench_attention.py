"""Times attention and sets it next to the machine's limits, measured in the same run.

Prefill is set next to a loop of fused multiply-adds on registers alone, counting only the products that a causal model
needs; decode next to a loop that reads memory, counting the bytes of K and V. One thread is measured by CPU time, more
by the clock, so run it on a quiet machine. The limits' loops are compiled here with `ziglang`, for this CPU.

    python tools/bench_attention.py [--threads 1 2] [--kinds bf16 int8 int4] [--head-dims 64 128] [--json]
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from twostroke.backends.cpu import CpuOps, library
from twostroke.ops.operands import AttentionBatch, KVLayer, new_kv_layer
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

HEADS, KV_HEADS = 32, 8
LIMITS = """
#include <stdint.h>
#include <string.h>
typedef float V __attribute__((vector_size(64)));
extern "C" float fma_loop(int64_t rounds) {  // 24 sums, two factors: nothing leaves the registers
  V sum[24], a, b;
  for (int i = 0; i < 16; ++i) { a[i] = 0.5f; b[i] = 1e-3f * i; }
  for (auto& s : sum) s = a;
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma clang loop unroll(full)
    for (int i = 0; i < 24; ++i) sum[i] = sum[i] * a + b;
  }
  V all = a;
  for (auto& s : sum) all += s;
  float total = 0;
  for (int i = 0; i < 16; ++i) total += all[i];
  return total;
}
extern "C" int64_t read_loop(const char* from, int64_t bytes) {
  typedef int64_t I __attribute__((vector_size(64)));
  I sum[8] = {};
  for (int64_t at = 0; at + 512 <= bytes; at += 512) {
    __builtin_prefetch(from + at + 8192);
    __builtin_prefetch(from + at + 8192 + 64);
    for (int i = 0; i < 8; ++i) { I v; memcpy(&v, from + at + 64 * i, 64); sum[i] += v; }
  }
  int64_t total = 0;
  for (auto& s : sum) for (int i = 0; i < 8; ++i) total += s[i];
  return total;
}
"""
SHAPES = ((512, 512), (2048, 2048), (512, 8192), (1, 512), (1, 4096))  # rows, context
POOL_BYTES = 256 << 20
FMA_ROUNDS = 400_000
FMA_FLOPS = FMA_ROUNDS * 24 * 16 * 2
READ_BYTES = 512 << 20


@dataclass(frozen=True)
class Case:
    """The last `rows` positions of a context."""

    rows: int
    context: int
    head_dim: int

    @property
    def name(self) -> str:
        """The case in words."""
        return f"{'prefill' if self.rows > 1 else 'decode'} {self.rows} rows, context {self.context}"


@dataclass(frozen=True)
class Measurement:
    """One case. share: of the FMA loop (prefill) or of the read loop (decode)."""

    case: str
    kind: str
    head_dim: int
    threads: int
    milliseconds: float
    rate: float
    unit: str
    share: float


def build_limits(folder: Path) -> ctypes.CDLL:
    """The two loops as a library. Raises CalledProcessError."""
    source, built = folder / "limits.cpp", folder / "limits.so"
    source.write_text(LIMITS)
    flags = ["-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-nostdlib++", "-fno-sanitize=undefined"]
    subprocess.run([sys.executable, "-m", "ziglang", "c++", *flags, str(source), "-o", str(built)], check=True)
    found = ctypes.CDLL(str(built))
    found.fma_loop.argtypes, found.fma_loop.restype = [ctypes.c_int64], ctypes.c_float
    found.read_loop.argtypes, found.read_loop.restype = [ctypes.c_void_p, ctypes.c_int64], ctypes.c_int64
    return found


def seconds_of(act: Callable[[], object], threads: int, rounds: int) -> float:
    """The median of `rounds` calls: CPU time for one thread, else the clock's."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    act()
    taken = []
    for _ in range(rounds):
        start = clock()
        act()
        taken.append(clock() - start)
    return float(np.median(taken))


def on_threads(work: Callable[[int], object], threads: int) -> Callable[[], None]:
    """Calls work(i) on each of `threads` threads; native code runs next to itself."""

    def act() -> None:
        if threads == 1:
            work(0)
            return
        others = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()

    return act


def limits(loops: ctypes.CDLL, threads: int) -> tuple[float, float]:
    """-> FLOP/s of registers, bytes/s of memory, the best of some rounds: new threads may share a core."""
    memory = np.ones(READ_BYTES, np.uint8)
    part = READ_BYTES // threads
    fma = on_threads(lambda i: loops.fma_loop(FMA_ROUNDS), threads)
    read = on_threads(lambda i: loops.read_loop(memory.ctypes.data + i * part, part), threads)
    fma_seconds = min(seconds_of(fma, threads, 1) for _ in range(8))
    read_seconds = min(seconds_of(read, threads, 1) for _ in range(5))
    return FMA_FLOPS * threads / fma_seconds, READ_BYTES / read_seconds


def filled(kind: KVKind, pages: int, head_dim: int) -> KVLayer:
    """A layer of ordinary numbers, written in place: what they are does not matter for time."""
    layer = new_kv_layer(kind, pages, KV_HEADS, head_dim)
    rng = np.random.default_rng(0)
    if kind is KVKind.F32:
        layer.data[...] = rng.standard_normal(layer.data.shape, dtype=np.float32)
    elif kind is KVKind.BF16:
        layer.data[...] = rng.integers(0x3E00, 0x3F80, layer.data.shape, dtype=np.uint16)
    else:
        layer.data[...] = rng.integers(0, 128, layer.data.shape, dtype=np.uint8)
        layer.data[..., -4 * PAGE_TOKENS :].view(np.uint16)[...] = 0x3C00
    return layer


def measure(ops: CpuOps, kind: KVKind, case: Case, threads: int, rounds: int) -> tuple[float, float, int]:
    """-> seconds of one call, its FLOPs (4 a visible position, head and dimension), its bytes of K and V.

    Sequences take turns in one pool that no cache holds, their pages scattered, so that a decode step reads memory.
    """
    pages = -(-case.context // PAGE_TOKENS)
    turns = 1 if case.rows > 1 else POOL_BYTES // (case.context * KV_HEADS * kind.token_bytes(case.head_dim)) + 1
    layer = filled(kind, pages * turns, case.head_dim)
    order = np.random.default_rng(1).permutation(pages * turns).astype(np.int32).reshape(turns, 1, pages)
    starts, contexts = np.array([0, case.rows], np.int32), np.array([case.context], np.int32)
    batches = [AttentionBatch(starts, contexts, table.copy()) for table in order]
    q = np.random.default_rng(2).standard_normal((case.rows, HEADS, case.head_dim), dtype=np.float32)
    out = np.empty_like(q)
    pairs = case.rows * case.context - case.rows * (case.rows - 1) // 2
    kv_bytes = case.context * KV_HEADS * kind.token_bytes(case.head_dim)

    def act() -> None:
        for batch in batches:
            ops.attention(out, q, layer, batch, case.head_dim**-0.5, 0)

    return seconds_of(act, threads, rounds) / turns, 4 * pairs * HEADS * case.head_dim, kv_bytes


def measured(
    ops: CpuOps, kind: KVKind, case: Case, threads: int, rounds: int, machine: tuple[float, float]
) -> Measurement:
    """One case next to its limit; machine: FLOP/s and bytes/s."""
    seconds, flops, kv_bytes = measure(ops, kind, case, threads, rounds)
    amount, limit, unit = (flops, machine[0], "GFLOP/s") if case.rows > 1 else (kv_bytes, machine[1], "GB/s")
    rate = amount / seconds
    return Measurement(
        case.name, kind.name.lower(), case.head_dim, threads, seconds * 1e3, rate / 1e9, unit, rate / limit
    )


def run(asked: argparse.Namespace, loops: ctypes.CDLL) -> list[Measurement]:
    """All cases; prints each as it is known, unless JSON was asked for."""
    found: list[Measurement] = []
    say: Callable[[str], None] = (lambda text: None) if asked.json else (lambda text: print(text, flush=True))
    cases = [
        (KVKind[word.upper()], Case(rows, context, dim))
        for dim, word, (rows, context) in itertools.product(asked.head_dims, asked.kinds, SHAPES)
    ]
    for threads in asked.threads:
        ops = CpuOps(asked.level, threads)
        machine = limits(loops, threads)
        say(f"{threads} threads, {ops.level}: limits {machine[0] / 1e9:.0f} GFLOP/s, {machine[1] / 1e9:.1f} GB/s")
        for kind, case in cases:
            one = measured(ops, kind, case, threads, asked.rounds, machine)
            found.append(one)
            say(
                f"  {one.case:32} {one.kind:5} dim {one.head_dim:3} {one.milliseconds:9.3f} ms"
                f" {one.rate:7.1f} {one.unit:8} {one.share:6.1%}"
            )
        ops.close()
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--kinds", nargs="+", default=["bf16", "int8", "int4"])
    parser.add_argument("--head-dims", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--level", default=None)
    parser.add_argument("--lib", type=Path, default=None, help="folder of other builds of the kernels")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.lib:
        library.library_path = lambda level: asked.lib / f"libtwostroke_{level}.so"
    with tempfile.TemporaryDirectory() as folder:
        found = run(asked, build_limits(Path(folder)))
    if asked.json:
        print(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    main()
