"""More bits are nearer to float32 on published weights: the order of our own formats, and the largest error of each.

The bounds are for the eight texts of this package. They find a change of rounding that changes an error by a third.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from twostroke import LLM, SamplingParams
from twostroke.assembly.settings.env import read_machine
from twostroke.lab.bench.fidelity import TOP, Fidelity
from twostroke.lab.bench.truth import Truth, exact_truth
from twostroke.weights.gguf.unfold import unfold

MOST = {"int8": 0.12, "int6": 0.2, "int5": 0.6, "int4": 0.9}
"""Formats by falling bits, and the largest error that each may have."""


def measured(truth: Truth, file: Path, weights: str) -> Fidelity:
    asked = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=TOP)
    heard = []
    with LLM(str(file), weights=weights, cache="off", context=1024, threads=2) as llm:
        for ids in truth.texts:
            (found,) = llm.generate([ids], asked)
            tops = [each.top for each in found.prompt_logprobs]
            heard.append([([token for token, _ in top], [logprob for _, logprob in top]) for top in tops])
    return truth.fidelity(heard)


@pytest.mark.daily
@pytest.mark.slow
def test_formats_with_fewer_bits_are_farther_from_float32(smol_file: Path) -> None:
    with exact_truth(unfold(smol_file, read_machine().cache_folder), 2) as truth:
        errors = {name: measured(truth, smol_file, name).error for name in MOST}
    assert sorted(errors, key=errors.__getitem__) == list(MOST)
    assert all(errors[name] < most for name, most in MOST.items()), errors
