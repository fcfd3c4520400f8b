"""Tiny checkpoints of transformers have the names and shapes that the program reads. Logits of prefill, chunked prefill
and every decode step, with float32 weights, are those of transformers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests import kept
from tests.models.families.stored import FAMILIES, Judged, facts, judged_checkpoint, write_checkpoint
from tests.models.parity import BAR, Loaded, other_tokens, parity_of
from twostroke.ops.program.model import Model
from twostroke.ops.reference import ReferenceOps
from twostroke.runner.folder import read_folder
from twostroke.weights.tensors import is_ignored, program_names, wanted_tensors


def check_all_is_read(judged: Judged, model: Model) -> None:
    """Checks that the names, shapes and the count of parameters that transformers writes are those of the program."""
    stored = judged.shapes
    names = program_names(frozenset(stored), model)
    shapes = {names.get(name, name): shape for name, shape in stored.items()}
    some: dict[str, set[int]] = {}
    wholly: set[str] = set()
    read = {tensor.name for tensor in wanted_tensors(model)}
    assert [name for name in shapes if name not in read and not is_ignored(name, model)] == []
    for tensor in wanted_tensors(model):
        found = shapes[tensor.name]
        turned = (found[0], *found[:0:-1]) if tensor.matrix is not None else found  # a stack may be transposed
        assert tensor.shape in (found, turned)
        part = tensor.rows or tensor.columns
        if part is not None:  # OPT's table of positions begins with two rows that are never read
            some.setdefault(tensor.name, set()).update(range(*part))
        if tensor.matrix is not None:  # one of two rows may belong to experts that only images use
            some.setdefault(tensor.name, set()).add(tensor.matrix)
        if part is None and tensor.matrix is None:
            wholly.add(tensor.name)
    in_part = {name: rows for name, rows in some.items() if name not in wholly}
    unread = sum((shapes[name][0] - len(rows)) * math.prod(shapes[name][1:]) for name, rows in in_part.items())
    stored_numbers = sum(math.prod(shapes[name]) for name in shapes if not is_ignored(name, model))
    assert model.parameters() == stored_numbers - unread


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_and_logits_agree_with_transformers(family, tmp_path, record_property):
    judged = judged_checkpoint(family, tmp_path)
    check_all_is_read(judged, read_folder(tmp_path))
    parity = parity_of(judged, tmp_path)
    worst = max(parity.errors.values())
    record_property("relative_error", worst)
    print(family, f"{worst:.2e}")
    assert worst < BAR, parity.errors
    assert not any(parity.tokens.values()), parity.tokens


def test_a_greedy_token_is_another_one_only_where_logits_are_no_tie():
    expected = np.array([[0.0, 1.0, 0.5], [0.0, 1.0, 1.0 - 1e-6], [1.0, 0.0, 0.2]], np.float32)
    found = np.array([[0.0, 0.4, 0.5], [0.0, 1.0 - 1e-6, 1.0], [1.0, 0.0, 0.2]], np.float32)
    assert other_tokens(found, expected) == 1 and other_tokens(expected, expected) == 0


def in_shards(folder: Path) -> dict[str, np.ndarray]:
    """As transformers divides them."""
    from tests.models.families.whole import make_checkpoint

    make_checkpoint("qwen2-biases", folder, max_shard_size="60KB")
    return {}


def test_sharded_checkpoints_load_the_same(tmp_path):
    write_checkpoint("qwen2-biases", tmp_path / "one")
    kept.made(("qwen2-biases in shards of 60 KB", *facts()), in_shards).unpack(tmp_path / "many")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    ids = list(range(20))
    one, many = (Loaded(tmp_path / name, ReferenceOps()).run(ids, [20]) for name in ("one", "many"))
    assert np.array_equal(one, many)
