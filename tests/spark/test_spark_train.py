"""The training code on toy shapes: gradients, resume, learning."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.lazily import Lazily, torch

F, model, training = Lazily("torch.nn.functional"), Lazily("tools.spark.model"), Lazily("tools.spark.train")


@cache
def toy() -> Any:
    """The config of a model of these tests."""
    return model.ModelConfig(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        head_dim=8,
        vocab_size=96,
        max_position_embeddings=512,
    )


@cache
def recipe() -> Any:
    """How it is trained."""
    return training.Recipe(minutes=1, lr=1e-2, dropout=0.1, batch_tokens=128, warmup_steps=5)


def toy_batch(seed: int) -> Any:
    """Sequences that count up: the next token is the last one plus one."""
    from tools.spark.data import Batch

    start = torch.randint(0, 60, (8, 1), generator=torch.Generator().manual_seed(seed))
    ids = start + torch.arange(16)
    rows, columns = torch.meshgrid(torch.arange(8), torch.arange(15), indexing="ij")
    rows, columns = rows.flatten(), columns.flatten()
    return Batch(ids, rows * 16 + columns, ids[rows, columns + 1], torch.ones(len(rows)))


def test_short_attention_equals_the_fused_kernel() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 33, 8), torch.randn(2, 2, 33, 8), torch.randn(2, 2, 33, 8)
    wide = [x.repeat_interleave(2, dim=1) for x in (k, v)]
    expected = F.scaled_dot_product_attention(q, wide[0], wide[1], is_causal=True)
    torch.testing.assert_close(model.attend(q, k, v), expected)


def test_head_loss_is_cross_entropy() -> None:
    from tools.spark.loss import HeadLoss

    torch.manual_seed(0)
    rows, head = torch.randn(700, 32).requires_grad_(), torch.randn(96, 32).requires_grad_()
    target, weight = torch.randint(0, 96, (700,)), torch.rand(700)
    loss, _ = HeadLoss.apply(rows, head, target, weight)
    loss.backward()
    grad_rows, grad_head = rows.grad, head.grad
    rows.grad = head.grad = None
    expected = (F.cross_entropy(rows @ head.t(), target, reduction="none") * weight).sum()
    expected.backward()
    assert grad_rows is not None and grad_head is not None and rows.grad is not None and head.grad is not None
    assert loss.item() == pytest.approx(expected.item(), rel=1e-2)
    assert (grad_rows - rows.grad).norm() < 0.02 * rows.grad.norm()
    assert (grad_head - head.grad).norm() < 0.02 * head.grad.norm()


def test_the_future_is_not_seen() -> None:
    torch.manual_seed(0)
    made = model.Llama(toy()).eval()
    ids = torch.randint(0, 96, (1, 20))
    changed = ids.clone()
    changed[0, 12:] = 5
    torch.testing.assert_close(made(ids)[:, :12], made(changed)[:, :12])


def test_it_learns_to_count() -> None:
    trainer = training.Trainer(toy(), recipe(), seed=1)
    losses = [trainer.step(toy_batch(i))[0] for i in range(60)]
    assert losses[-1] < losses[0] / 2


def test_a_resumed_run_is_the_unbroken_run(tmp_path: Path) -> None:
    unbroken = training.Trainer(toy(), recipe(), seed=1)
    broken = training.Trainer(toy(), recipe(), seed=1)
    for i in range(6):
        unbroken.step(toy_batch(i))
    for i in range(3):
        broken.step(toy_batch(i))
    broken.save(tmp_path / "checkpoint.pt")
    resumed = training.Trainer(toy(), recipe(), seed=1)
    resumed.resume(tmp_path / "checkpoint.pt")
    for i in range(3, 6):
        resumed.step(toy_batch(i))
    for name, tensor in unbroken.average.items():
        assert torch.equal(tensor, resumed.average[name]), name
    assert training.load_average(tmp_path / "checkpoint.pt")[2].step == 3


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    training.Trainer(toy(), recipe(), seed=1).save(tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match="another model or seed"):
        training.Trainer(toy(), recipe(), seed=2).resume(tmp_path / "checkpoint.pt")


def test_learning_rate_warms_up_and_ends_low() -> None:
    assert training.learning_rate(recipe(), training.Progress(step=0)) == pytest.approx(recipe().lr / 5)
    assert training.learning_rate(recipe(), training.Progress(step=50)) == recipe().lr
    assert training.learning_rate(recipe(), training.Progress(step=50, seconds=30)) == pytest.approx(recipe().lr / 2)
    assert training.learning_rate(recipe(), training.Progress(step=50, seconds=90)) == pytest.approx(recipe().lr * 0.02)
