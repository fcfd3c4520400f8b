"""A decode step of a Llama shape by torch, compiled (mode max-autotune: CUDA graphs), one stream, bfloat16.

    python tools/gpu/torch_peer.py [--device cuda] [--hidden 4096 --inner 14336 --layers 32 ...]

One line of JSON. A program of its own: torch is no part of this project's runtime.

Knows: torch.
Must not know: the package.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

DIM, CONTEXT = 128, 512


class Layer(nn.Module):
    """Norms, products and attention over a context that stays; rotation is left out, which favours torch."""

    def __init__(self, hidden: int, inner: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, dim = hidden // DIM or 1, min(kv_heads, hidden // DIM or 1), DIM
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * dim, bias=False)
        self.out = nn.Linear(self.heads * dim, hidden, bias=False)
        self.gate_up, self.down = nn.Linear(hidden, 2 * inner, bias=False), nn.Linear(inner, hidden, bias=False)
        self.register_buffer("keys", torch.randn(1, self.kv_heads, CONTEXT, dim))
        self.register_buffer("values", torch.randn(1, self.kv_heads, CONTEXT, dim))

    keys: Tensor
    values: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """x (1, hidden)."""
        joined = self.qkv(rms_norm(x, x.shape[-1:])).view(1, -1, 1, DIM)
        q = joined[:, : self.heads]
        seen = scaled_dot_product_attention(q, self.keys, self.values, enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(seen.reshape(1, -1))
        gate, up = self.gate_up(rms_norm(x, x.shape[-1:])).chunk(2, -1)
        return x + self.down(silu(gate) * up)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=50)
    for name, default in (("hidden", 4096), ("inner", 14336), ("layers", 32), ("kv_heads", 8), ("vocabulary", 128256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    torch.set_default_dtype(torch.bfloat16 if asked.device == "cuda" else torch.float32)
    with torch.device(asked.device), torch.no_grad():
        layers = [Layer(asked.hidden, asked.inner, asked.kv_heads) for _ in range(asked.layers)]
        model = nn.Sequential(*layers, nn.Linear(asked.hidden, asked.vocabulary, bias=False))
        step = torch.compile(model, mode="max-autotune" if asked.device == "cuda" else "default")
        x = torch.randn(1, asked.hidden)
        taken = []
        for _ in range(asked.rounds + 3):
            before = time.perf_counter()
            step(x).argmax().item()  # the copy down waits for the device
            taken.append(time.perf_counter() - before)
    seconds = statistics.median(taken[3:])
    num_bytes = sum(weight.nbytes for weight in model.parameters())
    kind = f"{torch.get_default_dtype()}, {asked.layers} layers of {asked.hidden}"
    what = f"torch {torch.__version__} compiled, {kind}, 1 stream"
    print(json.dumps({"what": what, "seconds": seconds, "rows_per_s": 1 / seconds, "bytes_per_s": num_bytes / seconds}))


if __name__ == "__main__":
    main()
