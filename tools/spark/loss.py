"""The loss over the output head, computed in slices so that the logits of a batch never exist at once."""

import ctypes
from typing import Any

import torch
from torch import Tensor

SLICE = 512  # rows of logits held at a time: 512 x 4096 bfloat16 = 4 MB


def reuse_memory() -> None:
    """Ask glibc to keep freed memory. Otherwise every large tensor is mapped anew and its pages are cleared, and page
    faults take half of a step. Does nothing with another C library."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in ((-4, 0), (-1, 2**31 - 1), (-2, 64 << 20)):  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD
        mallopt(parameter, value)


class HeadLoss(torch.autograd.Function):
    """Weighted cross entropy of `rows` [n, hidden] against `target` [n] through `head` [vocab, hidden].

    Gives (weighted sum, losses [n]). Only the weighted sum has a gradient, which is computed in the forward pass.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, head: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the losses and the gradients. `weight` [n] is the factor of each row's loss in the sum."""
        count = rows.shape[0]
        low_rows, low_head = rows.detach().bfloat16(), head.detach().bfloat16()
        grad_rows = torch.empty_like(low_rows)
        grad_head = torch.zeros(head.shape, dtype=torch.float32)
        losses = torch.empty(count)
        for start in range(0, count, SLICE):
            part = slice(start, min(count, start + SLICE))
            # In bfloat16 a share above 0.998 rounds to 1, so what is known that well is let be.
            shares = torch.softmax(torch.mm(low_rows[part], low_head.t()), -1)
            at_target = target[part, None]
            losses[part] = -shares.gather(1, at_target).squeeze(1).float().clamp_min(1e-20).log()
            flat = torch.arange(shares.shape[0]) * shares.shape[1] + target[part]
            shares.view(-1)[flat] -= 1.0
            low_grad = shares.mul_(weight[part, None].bfloat16())
            torch.mm(low_grad, low_head, out=grad_rows[part])
            grad_head += torch.mm(low_grad.t(), low_rows[part])
        ctx.save_for_backward(grad_rows.to(rows.dtype), grad_head)
        ctx.mark_non_differentiable(losses)
        return (losses * weight).sum(), losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Scale the gradients that `forward` has computed."""
        grad_rows, grad_head = ctx.saved_tensors
        return grad_rows * grads[0], grad_head * grads[0], None, None
