"""Every architecture runs on the emulated device, with the tokens and log probabilities of the CPU, bit for bit.
Requests run together, share a prefix, wait for pages, have guesses, and keep states."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import pytest

from tests.bench.random_checkpoint import write_random
from tests.cuda.emulator.fake import controls, device
from tests.engine.test_exactness import END_ID, Loaded, Output, core, drive, seer_of
from tests.models.families.stored import config_of, generating
from tests.tiers import TIER, fewer, thinned
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.packer import NativePacker
from twostroke.backends.cuda.device import CudaDevice
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.models.common.registry import read_model
from twostroke.ops.quant.formats import FORMATS, format_choice
from twostroke.runner.place_weights import placed
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights

PAIRS = [(weights, kv) for weights in FORMATS for kv in KVKind]
ARCHITECTURES = fewer(16, quick=2)
"""A few architectures; the seed chooses them."""
STEM = tuple(range(20, 55))
LIMITS = SchedulerLimits(24, 3, 2, 4)
"""Limits at which prompts are cut into chunks and guesses are few."""
PAGES = 9
"""Fewer pages than the requests could use."""


def requests() -> list[Request]:
    """Three requests with one stem, of which one is greedy, and one request alone."""
    sampled = SamplingParams(temperature=0.9, logprobs=2, prompt_logprobs=1, repetition_penalty=1.2)
    greedy = SamplingParams(temperature=0.0, logprobs=2)
    asked = [((*STEM, 3), sampled, 8), ((*STEM, 4), greedy, 6), (STEM[:20], sampled, 5), ((9, 8, 7), greedy, 8)]
    return [
        Request(str(i), str(i), prompt, params, 11 * i, size, frozenset({END_ID}), 0.0)
        for i, (prompt, params, size) in enumerate(asked)
    ]


def answers(
    loaded: Loaded, kv: KVKind, on: CpuOps | CudaDevice, expected: dict[str, Output] | None
) -> dict[str, Output]:
    """expected: the answers that a guesser knows, mostly right; None for no guesses."""
    vocab = loaded[0].vocab_size
    seer = None if expected is None or loaded[0].state_bytes() else seer_of(expected, 0.8, Random(1), vocab)
    engine = core(loaded, kv, on, PAGES, LIMITS, None, seer)
    return drive(engine, [(2 * place, request) for place, request in enumerate(requests())], vocab)[0]


@cache
def cases() -> list[tuple[str, str, KVKind]]:
    """One family of each architecture in one pair of formats; the seed chooses both."""
    chosen = thinned(list(generating().values()), "served by a device", ARCHITECTURES)
    places = ((TIER.seed + 7 * place, families) for place, families in enumerate(chosen))
    return [(families[place % len(families)], *PAIRS[place % len(PAIRS)]) for place, families in places]


@pytest.mark.parametrize(("family", "weights", "kv"), cases())
def test_a_device_serves_what_the_cpu_serves(
    family: str, weights: str, kv: KVKind, cpu: CpuOps, tmp_path: Path
) -> None:
    config = config_of(family)
    write_random(config, tmp_path)
    model, packer = read_model(config), NativePacker(None, 1)
    with Checkpoint.open(tmp_path) as checkpoint:
        loaded = load_weights(checkpoint, model, format_choice(weights), packer)
    packer.close()
    expected = answers((model, loaded), kv, cpu, None)
    gpu = device(7)
    found = answers((model, placed(loaded, gpu)), kv, gpu, expected)
    gpu.close()
    assert found == expected
    assert controls().fake_used() == 0
