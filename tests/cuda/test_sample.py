"""Sampling on the emulated device: tokens, log probabilities and faults are those of the CPU's sampler, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools.gpu.logits_there import LogitsThere

from tests.cuda.emulator.fake import controls, device, wrong
from tests.sampling.test_choose import planned
from tests.tiers import examples
from twostroke.backends.cuda.device import CudaDevice
from twostroke.backends.cuda.limits import sampling_bytes
from twostroke.ops.attention.token_weights import weigh
from twostroke.ops.step_memory import StepSizes
from twostroke.runner.device.rows import MOST_TOP, SAMPLE_INPUT, SAMPLE_RESULT
from twostroke.runner.device.sampler import MANY_TOP, NO_ROOM, NOT_FINITE, DeviceSampler
from twostroke.runner.samplers import HostSampler, Sampled
from twostroke.runner.sampling.sampler import sample
from twostroke.types.errors import BackendError
from twostroke.types.grammar import GrammarFault
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.sampling.forbidden_tokens import NoTokenLeft
from twostroke.types.sampling.sampling_params import SamplingParams


class Mask:
    """A grammar that allows the tokens whose bits are set; each token changes the bits. As in the real grammar, a
    forbidden token is a fault, and a fault stays. fault_at: the number of tokens at which the grammar fails."""

    mask_s = 0.0

    def __init__(self, bits: bytes, num_tokens: int, fault_at: int | None = None) -> None:
        self._first, self._fed, self._base, self._fault_at = bits, list[int](), num_tokens, fault_at
        self.is_broken = False

    @property
    def num_tokens(self) -> int:
        return self._base + len(self._fed)

    def bits(self) -> bytes:
        if self.is_broken or self.num_tokens == self._fault_at:
            raise GrammarFault("too heavy")
        turned = sum(self._fed) % 251
        return bytes(each ^ turned for each in self._first)

    def feed(self, token_id: int) -> None:
        self.is_broken |= not self.bits()[token_id // 8] >> token_id % 8 & 1
        self._fed.append(token_id)

    def rewind(self, num_tokens: int) -> None:
        del self._fed[num_tokens - self._base :]


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaDevice]:
    made = device()
    yield made
    made.close()


def sequence(index: int, params: SamplingParams, output: list[int], mask: Any = None, ends: Any = ()) -> Any:
    base = planned(params, output)
    request = replace(base.request, request_id=str(index), mask=mask, end_token_ids=frozenset(ends))
    return base._replace(request=request)


def both(
    gpu: CudaDevice, logits: np.ndarray, sequences: list[PlannedSequence], room: int | None = None
) -> tuple[Sampled, Sampled, DeviceSampler]:
    """The samples of the CPU, and those of the device."""
    rows = sum(each.sampled_rows for each in sequences)
    plan, sizes = Plan(0, tuple(sequences)), StepSizes(rows, len(sequences), rows)
    host = HostSampler(lambda _sizes: logits, weigh)  # type: ignore[arg-type]
    expected = host.choose(plan, host.forward(plan, sizes))
    with gpu.lent():
        forward = LogitsThere(gpu, logits) if room is None else LogitsThere(gpu, logits, room)
        sampler = DeviceSampler(forward, logits.shape[1], weigh)
        try:
            found = sampler.choose(plan, sampler.forward(plan, sizes))
        except BackendError as error:
            raise AssertionError(f"{error} {wrong()}") from None
    assert sum(sampler.reasons.values()) <= forward.read
    return expected, found, sampler


def rows_of(rng: np.random.Generator, rows: int, vocabulary: int) -> np.ndarray:
    """Logits of many kinds: few values (ties, both zeros), wide ones, forbidden ones, rows without a finite one,
    NaN."""
    logits = (rng.standard_normal((rows, vocabulary)) * rng.choice([0.1, 3.0, 40.0], (rows, 1))).astype(np.float32)
    for row in logits:
        kind = rng.integers(8)
        if kind < 3:
            row[...] = rng.choice(np.array([-1.5, -0.0, 0.0, 2.0], np.float32), vocabulary)
        if kind in (2, 3):
            row[rng.random(vocabulary) < 0.5] = -np.inf
        if kind == 4 and rng.random() < 0.3:
            row[rng.integers(vocabulary)] = rng.choice(np.array([np.nan, np.inf], np.float32))
    return logits


def params_of(rng: np.random.Generator, vocabulary: int, masked: bool) -> SamplingParams:
    """Sampling parameters of many kinds."""

    def sometimes(value: Any, other: Any, share: float = 0.3) -> Any:
        return value if rng.random() < share else other

    def ids(most: int) -> list[int]:
        return rng.integers(0, vocabulary, rng.integers(1, most + 1)).tolist()

    top_k = int(rng.choice([1, 2, 5, 40, vocabulary, vocabulary + 9]))
    return SamplingParams(
        temperature=float(rng.choice([0.0, 0.05, 0.7, 1.0, 2.0])),
        top_k=sometimes(top_k, 0, 0.5),
        top_p=float(sometimes(rng.choice([0.0, 0.3, 0.9, 0.999]), 1.0, 0.5)),
        min_p=float(sometimes(rng.choice([0.01, 0.5, 1.0]), 0.0)),
        repetition_penalty=float(sometimes(rng.choice([0.5, 1.3]), 1.0)),
        repetition_window=sometimes(int(rng.integers(4)), None),
        presence_penalty=float(sometimes(rng.choice([-1.1, 0.7]), 0.0)),
        frequency_penalty=float(sometimes(rng.choice([-0.3, 0.9]), 0.0)),
        logit_bias=sometimes({token: float(rng.uniform(-100, 100)) for token in ids(5)}, {}),
        min_tokens=0 if masked else sometimes(9, 0),
        allowed_token_ids=None if masked else sometimes(ids(4), None, 0.2),
        bad_token_ids=() if masked else sometimes([ids(1), ids(2), ids(2)], (), 0.2),
        logprobs=sometimes(int(rng.choice([0, 1, 5, MOST_TOP])), None, 0.6),
    )


def any_sequence(rng: np.random.Generator, index: int, vocabulary: int) -> PlannedSequence:
    masked = rng.random() < 0.3
    params = params_of(rng, vocabulary, masked)
    output = rng.integers(0, vocabulary, rng.integers(0, 30)).tolist()
    mask = Mask(rng.bytes(-(-vocabulary // 8)), len(output)) if masked else None
    return sequence(index, params, output, mask, ends=rng.integers(0, vocabulary, 2).tolist())


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from([7, 17, 300, 1025]), st.integers(1, 20))
def test_tokens_and_log_probabilities_are_the_cpus(gpu: CudaDevice, seed: int, vocabulary: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    controls().fake_orders(seed)
    sequences = [any_sequence(rng, index, vocabulary) for index in range(rows)]
    expected, found, sampler = both(gpu, rows_of(rng, rows, vocabulary), sequences)
    assert repr(found) == repr(expected)  # texts are compared, because NaN is not equal to NaN
    assert set(sampler.reasons) <= {NOT_FINITE}


def guessed(rng: np.random.Generator, index: int, logits: np.ndarray) -> PlannedSequence:
    """Guesses that are often right: the tokens that the CPU samples without guesses, some of them replaced."""
    vocabulary = logits.shape[1]
    found = any_sequence(rng, index, vocabulary)
    if found.request.mask is not None and rng.random() < 0.2:
        found.request.mask._fault_at = found.num_output_tokens + 1
    known, right = list(found.known_token_ids), list[int]()
    for row in logits[:-1]:
        try:
            token = sample(weigh, row, found._replace(known_token_ids=known)).token_id
        except (ValueError, IndexError, NoTokenLeft):
            break
        right.append(token)
        known.append(token)
        if found.request.mask is not None:
            found.request.mask.feed(token)
    if found.request.mask is not None:
        found.request.mask.rewind(found.num_output_tokens)
    others = rng.integers(0, vocabulary, len(logits) - 1).tolist()
    kept = rng.integers(len(right) + 1)
    return found._replace(draft_token_ids=tuple((right[:kept] + others)[: len(logits) - 1]))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from([7, 60, 300]), st.integers(1, 6))
def test_guesses_count_where_the_cpu_counts_them(gpu: CudaDevice, seed: int, vocabulary: int, count: int) -> None:
    """The requests have penalties, masks that move, bans and log probabilities. No mask is left broken."""
    rng = np.random.default_rng(seed)
    controls().fake_orders(seed)
    sequences, logits = [], list[np.ndarray]()
    for index in range(count):
        rows = rows_of(rng, int(rng.integers(1, 7)), vocabulary)
        sequences.append(guessed(rng, index, rows))
        logits.append(rows)
    expected, found, sampler = both(gpu, np.concatenate(logits), sequences)
    assert repr(found) == repr(expected) and set(sampler.reasons) <= {NOT_FINITE}
    assert not [each for each in sequences if each.request.mask is not None and each.request.mask.is_broken]


def test_lists_of_guesses_stand_once(gpu: CudaDevice) -> None:
    """A mask that does not change takes room once, not for each of nine rows."""
    logits = np.zeros((9, 3000), np.float32)
    logits[:, 5] = 9.0
    params = SamplingParams(temperature=0.0, logit_bias={5: 1.0}, allowed_token_ids=[5, 6], logprobs=1)
    guesses = sequence(0, params, [1])._replace(draft_token_ids=(5,) * 8)
    room = 9 * SAMPLE_INPUT.itemsize + 500
    expected, found, sampler = both(gpu, logits, [guesses], room)
    assert found == expected and len(found.tokens["0"]) == 9 and sampler.reasons == {}


def test_prompts_are_scored_there(gpu: CudaDevice) -> None:
    rng = np.random.default_rng(2)
    logits = (3 * rng.standard_normal((40, 700))).astype(np.float32)
    logits[7] = rng.choice(np.array([0.0, 1.0, -np.inf], np.float32), 700)
    tokens, sizes = rng.integers(0, 700, 40).tolist(), StepSizes(40, 1, 40)
    with gpu.lent():
        host = HostSampler(LogitsThere(gpu, logits), weigh)  # type: ignore[arg-type]
        forward = LogitsThere(gpu, logits)
        sampler = DeviceSampler(forward, 700, weigh)
        for num_top, rows in ((0, range(40)), (3, range(7, 11)), (MOST_TOP, range(1)), (MOST_TOP + 1, range(2))):
            ids = np.array(rows, np.int32)
            there = sampler.score(ids, tokens[rows.start : rows.stop], num_top, sizes)
            assert there == host.score(ids, tokens[rows.start : rows.stop], num_top, sizes)
    assert sampler.reasons == {MANY_TOP: 1} and forward.read == 2


def test_a_large_vocabulary(gpu: CudaDevice) -> None:
    rng = np.random.default_rng(4)
    logits = (rng.standard_normal((3, 70_001)) * 3).astype(np.float32)
    kinds = (
        SamplingParams(top_p=0.95, top_k=50, temperature=0.8, logprobs=3),
        SamplingParams(temperature=2.0, frequency_penalty=0.5),
        SamplingParams(temperature=1.0, top_p=0.9999, min_p=1e-4),
    )
    sequences = [sequence(index, params, [5, 70_000 - 1, 5]) for index, params in enumerate(kinds)]
    expected, found, _ = both(gpu, logits, sequences)
    assert found == expected and len(found.tokens) == 3


def test_more_likely_tokens_than_are_listed(gpu: CudaDevice) -> None:
    """Thousands of logits are equal, and top-p keeps thousands of tokens. Scratch memory stays within its plan."""
    rng = np.random.default_rng(5)
    logits = np.repeat(np.array([[1.0], [0.0], [2.0]], np.float32), 5_003, axis=1)
    logits[1:, rng.integers(0, 5_003, 9)] = 2.5
    kinds = (
        SamplingParams(top_p=0.6, top_k=2_900, seed=1, logprobs=4),
        SamplingParams(top_p=0.9, temperature=1.5, seed=2),
        SamplingParams(top_k=3_000, min_p=0.3, seed=3, logprobs=20, logit_bias={7: 0.5}),
    )
    before = controls().fake_used()
    expected, found, _ = both(gpu, logits, [sequence(index, params, [5]) for index, params in enumerate(kinds)])
    assert found == expected and len(found.tokens) == 3
    assert controls().fake_used() - before <= sampling_bytes(5_003)


def test_what_needs_the_logits_here_is_sampled_here_by_name(gpu: CudaDevice) -> None:
    logits = np.random.default_rng(1).standard_normal((8, 90)).astype(np.float32)
    beam = SamplingParams(use_beam_search=True, best_of=30, n=1, temperature=0.0)
    names_none = SamplingParams(temperature=0.0, logit_bias={95: -1.0})
    guessing = sequence(0, names_none, [1])._replace(draft_token_ids=(int(logits[0].argmax()), 3))
    sequences = [
        guessing,
        sequence(1, beam, []),
        sequence(2, SamplingParams(logit_bias={90: 1.0}), []),
        sequence(3, SamplingParams(seed=3), [4]),
        sequence(4, SamplingParams(use_beam_search=True, n=2, logit_bias={5: 1.0}), []),
        sequence(5, SamplingParams(use_beam_search=True, n=2), []),
    ]
    expected, found, sampler = both(gpu, logits, sequences)
    assert found == expected and "sampling failed" in found.failed["0"] and "sampling failed" in found.failed["2"]
    assert all(len(found.tokens[name][0].offered) == count for name, count in (("1", 30), ("4", 2), ("5", 2)))
    assert sorted(why.partition(":")[0] for why in sampler.reasons) == [
        "a beam whose request changes log probabilities",
        "a token that the vocabulary does not have",
        "more than 20 likely tokens (beam search)",
    ]


def test_lists_without_room_and_masks_that_failed(gpu: CudaDevice) -> None:
    logits = np.random.default_rng(1).standard_normal((3, 90)).astype(np.float32)
    output = list(range(60))
    sequences = [
        sequence(0, SamplingParams(frequency_penalty=1.0, seed=1), output),
        sequence(1, SamplingParams(), [1], Mask(b"", 1, fault_at=1)),
        sequence(2, SamplingParams(logit_bias={3: 90.0}), [1], Mask(b"\x08", 1)),
    ]
    expected, found, sampler = both(gpu, logits, sequences, room=3 * SAMPLE_INPUT.itemsize + 100)
    assert found == expected and sampler.reasons == {NO_ROOM: 1}
    assert found.tokens["2"][0].token_id == 3 and set(found.failed) == {"1"}


def test_what_is_asked_is_checked(gpu: CudaDevice) -> None:
    """Errors come before a kernel could read or write elsewhere."""
    logits = gpu.put(np.zeros((1, 40), np.float32))
    inputs = gpu.inputs(64)
    wrongs: list[tuple[str, Any]] = [
        ("top_k", -1),
        ("num_top", MOST_TOP + 1),
        ("top_p", 2**53 + 1),
        ("draw", 2**53),
        ("banned", (SAMPLE_INPUT.itemsize, 1)),
        ("seen", (1 << 30, 1)),
        ("mask", (SAMPLE_INPUT.itemsize, 5)),
        ("given", 41),
        ("given", -1),
    ]
    for name, value in wrongs:
        asked = np.zeros(1, SAMPLE_INPUT)
        asked[name] = value
        where = gpu.upload(inputs, 64, np.concatenate([asked.view(np.uint8), np.full(64, 40, np.uint8)]))
        with pytest.raises(BackendError, match="sample was refused"):
            gpu.sample(logits, where, SAMPLE_INPUT.itemsize, np.zeros(1, SAMPLE_RESULT))
    with pytest.raises(BackendError, match="sample was refused"):
        gpu.sample(
            logits,
            gpu.upload(inputs, 64, np.zeros(SAMPLE_INPUT.itemsize, np.uint8)),
            SAMPLE_INPUT.itemsize - 8,
            np.zeros(1, SAMPLE_RESULT),
        )
