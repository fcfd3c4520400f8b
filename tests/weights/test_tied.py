"""A second head next to a tied embedding: it is compared to its last bit once, and the checkpoint's fingerprint
remembers this."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.bench.random_checkpoint import write_random
from tests.models.families.stored import config_of
from twostroke.runner.folder import read_folder
from twostroke.weights import tied
from twostroke.weights.checkpoint import Checkpoint

TABLE = "model.embed_tokens.weight"


def with_head(folder: Path, change: bool) -> Path:
    """A tied model whose checkpoint has a copy of the embedding as its head. `change`: whether one bit differs."""
    config = config_of("llama-tied")
    write_random(config, folder)
    with Checkpoint.open(folder) as checkpoint:
        tensors = {name: np.array(checkpoint.read(name)) for name in checkpoint.names}
    head = tensors[TABLE].copy()
    if change:
        head.view(np.uint32)[-1, -1] ^= 1
    save_file({**tensors, tied.HEAD: head}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The number of comparisons so far."""
    found: list[str] = []
    same = tied.same_numbers

    def counting(*arguments: Any) -> bool:
        found.append("compared")
        return same(*arguments)

    monkeypatch.setattr(tied, "same_numbers", counting)
    return found


@pytest.mark.parametrize("change", [False, True])
def test_the_second_start_does_not_compare_again(change: bool, tmp_path: Path, compared: list[str]) -> None:
    (folder := tmp_path / "model").mkdir()
    with_head(folder, change)
    for starts in range(3):
        model = read_folder(folder, tmp_path / "kept")
        assert (tied.HEAD not in model.ignored) == change
        assert len(compared) == 1, starts
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_file_that_was_changed_is_compared_again(tmp_path: Path, compared: list[str]) -> None:
    (folder := tmp_path / "model").mkdir()
    with_head(folder, change=False)
    assert tied.HEAD in read_folder(folder, tmp_path / "kept").ignored
    with_head(folder, change=True)
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert tied.HEAD not in read_folder(folder, tmp_path / "kept").ignored and len(compared) == 2


def test_an_answer_that_cannot_be_read_or_kept_is_found_anew(tmp_path: Path, compared: list[str]) -> None:
    (folder := tmp_path / "model").mkdir()
    with_head(folder, change=True)
    read_folder(folder, tmp_path / "kept")
    (note,) = (tmp_path / "kept").iterdir()
    note.write_text("equ")
    assert tied.HEAD not in read_folder(folder, tmp_path / "kept").ignored and len(compared) == 2
    (tmp_path / "file").write_text("")
    assert tied.HEAD not in read_folder(folder, tmp_path / "file").ignored and len(compared) == 3
