"""Steps of a Llama shape by torch, each one CUDA graph: first without a compiler, which takes seconds, then with layers
compiled. bfloat16, and int8 weights alone.

    python tools/gpu/torch_peer.py [--device cuda] [--seconds 55] [--hidden 4096 --inner 14336 --layers 32 ...]

A line of JSON for each case; none begins after --seconds. Rotation, the write of K and V and sampling's draw are left
out, which favours torch. A program of its own: torch is no part of this project's runtime.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import config as inductor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

DIM, CONTEXT = 128, 512
LONGEST_S = 1.0
"""The seconds of rounds after which no further round is begun."""


class Int8Linear(nn.Module):
    """A matrix of int8 with a scale for each row. A compiler joins the conversion to the wider type with the product.
    """

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (rows, columns), dtype=torch.int8))
        self.register_buffer("scales", torch.full((rows,), 1.0 / 8192.0))

    weight: Tensor
    scales: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Returns the product. x: (rows of a step, columns)."""
        return linear(x, self.weight.to(x.dtype)) * self.scales


def product(columns: int, rows: int, is_int8: bool) -> nn.Module:
    """Returns a matrix without bias, in int8 or in the default type."""
    return Int8Linear(columns, rows) if is_int8 else nn.Linear(columns, rows, bias=False)


class Layer(nn.Module):
    """One layer: norms, products and attention. Streams attend to a context that does not change, a prompt to itself.
    """

    def __init__(self, hidden: int, inner: int, kv_heads: int, is_int8: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads = hidden // DIM or 1, min(kv_heads, hidden // DIM or 1)
        self.qkv = product(hidden, (self.heads + 2 * self.kv_heads) * DIM, is_int8)
        self.out = product(self.heads * DIM, hidden, is_int8)
        self.gate_up, self.down = product(hidden, 2 * inner, is_int8), product(inner, hidden, is_int8)

    def forward(self, x: Tensor, keys: Tensor | None, values: Tensor | None) -> Tensor:
        """x: (rows, hidden). keys, values: (rows, kv heads, CONTEXT, DIM), one for each stream; None for a prompt."""
        rows = x.shape[0]
        joined = self.qkv(rms_norm(x, x.shape[-1:])).view(rows, -1, DIM)
        q, k, v = joined.split((self.heads, self.kv_heads, self.kv_heads), 1)
        many = self.heads != self.kv_heads
        if keys is None or values is None:
            q, k, v = (each.transpose(0, 1).unsqueeze(0) for each in (q, k, v))
            seen = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=many).squeeze(0).transpose(0, 1)
        else:
            seen = scaled_dot_product_attention(q.unsqueeze(2), keys, values, enable_gqa=many)
        x = x + self.out(seen.reshape(rows, -1))
        gate, up = self.gate_up(rms_norm(x, x.shape[-1:])).chunk(2, -1)
        return x + self.down(silu(gate) * up)


class Steps:
    """A model whose steps of several sizes are timed."""

    def __init__(self, asked: argparse.Namespace, is_int8: bool) -> None:
        self.asked, self.is_int8, self.on_cuda = asked, is_int8, asked.device.startswith("cuda")
        self.layers = [Layer(asked.hidden, asked.inner, asked.kv_heads, is_int8) for _ in range(asked.layers)]
        self.head = product(asked.hidden, asked.vocabulary, is_int8)
        modules = (*self.layers, self.head)
        self.num_bytes = sum(each.nbytes for part in modules for each in (*part.parameters(), *part.buffers()))
        self.words = "int8 weights" if is_int8 else str(torch.get_default_dtype()).removeprefix("torch.")

    def seconds(self, rows: int, is_prompt: bool, how: str | None) -> float:
        """Returns the median seconds of a step that ends with its tokens on the host. how: torch.compile's mode; None
        for no compilation."""
        torch._dynamo.reset()
        # A product with one row is joined with the widening of its weights only where the compiler tunes.
        inductor.coordinate_descent_tuning = self.on_cuda and self.is_int8
        layer_of: list[Callable[..., Tensor]] = [
            each if how is None else torch.compile(each, dynamic=False, mode=how) for each in self.layers
        ]
        head = self.head if how is None else torch.compile(self.head, dynamic=False, mode=how)
        x = torch.randn(rows, self.asked.hidden)
        shape = (rows, self.layers[0].kv_heads, CONTEXT, DIM)
        kept = [(None, None) if is_prompt else (torch.randn(shape), torch.randn(shape)) for _ in self.layers]

        def step() -> Tensor:
            found = x
            for layer, (keys, values) in zip(layer_of, kept, strict=True):
                found = layer(found, keys, values)
            return head(found[-1:] if is_prompt else found).argmax(-1)

        return self._median(self._captured(step) if self.on_cuda else step)

    def _captured(self, step: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Returns the step as one CUDA graph."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            tokens = step()

        def replay() -> Tensor:
            graph.replay()
            return tokens

        return replay

    def _median(self, step: Callable[[], Tensor]) -> float:
        taken: list[float] = []
        while len(taken) < self.asked.rounds + 3 and sum(taken) < LONGEST_S or len(taken) < 4:
            before = time.perf_counter()
            step().tolist()  # the copy down waits for the device
            taken.append(time.perf_counter() - before)
        return statistics.median(taken[3:])


def figures(steps: Steps, name: str, rows: int, is_prompt: bool, is_compiled: bool) -> dict[str, Any]:
    """Returns the figures of one case. Where the compiler fails, the row has no figure but the compiler's words."""
    how = ("max-autotune-no-cudagraphs" if steps.asked.tune else "default") if is_compiled else None
    words = "compiled" if is_compiled else "one graph"
    shape = f"{steps.asked.layers} layers of {steps.asked.hidden}"
    what = f"torch {torch.__version__} {words}, {steps.words}, {shape}, {name}"
    try:
        seconds = steps.seconds(rows, is_prompt, how)
    except Exception as error:  # whatever a compiler lacks there
        return {"what": what, "not_run": f"{type(error).__name__}: {str(error)[:300]}"}
    row = {"what": what, "seconds": seconds, "rows_per_s": rows / seconds}
    return row | ({} if is_prompt else {"bytes_per_s": steps.num_bytes / seconds})


def main() -> None:
    """See the module."""
    begun = time.perf_counter()
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=50.0)
    parser.add_argument("--tune", action="store_true", help="let the compiler choose among kernels: minutes")
    parser.add_argument("--prompt", type=int, default=2048)
    for name, default in (("hidden", 4096), ("inner", 14336), ("layers", 32), ("kv_heads", 8), ("vocabulary", 128256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    torch.set_default_dtype(torch.bfloat16 if asked.device.startswith("cuda") else torch.float32)
    bf16 = (("1 stream", 1, False), (f"a prompt of {asked.prompt}", asked.prompt, True), ("64 streams", 64, False))
    cases = [(False, is_compiled, *case) for is_compiled in (False, True) for case in bf16]
    cases.append((True, True, *bf16[0]))  # last: its tuning takes longest
    made: dict[bool, Steps] = {}
    with torch.device(asked.device), torch.no_grad():
        for is_int8, is_compiled, name, rows, is_prompt in cases:
            if time.perf_counter() - begun > asked.seconds:
                print(json.dumps({"what": f"torch, {name}", "not_run": "no time left"}), flush=True)
                continue
            if is_int8 not in made:
                made[is_int8] = Steps(asked, is_int8)
            row = figures(made[is_int8], name, rows, is_prompt, is_compiled)
            print(json.dumps(row | {"program_s": time.perf_counter() - begun}), flush=True)


if __name__ == "__main__":
    main()
