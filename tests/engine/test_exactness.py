"""The exactness law: a request's tokens and log probabilities are the same bits alone and in any schedule.

Random requests in random schedules (arrivals, step budgets, batch sizes, pools so small that sequences are preempted,
prefix hits, siblings, grammars, one thread or two) against each request alone on a fresh engine with room for
everything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch  # noqa: F401  (loaded before the kernels' threads start)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.families import make_checkpoint
from tests.scheduler.fakes import LineCost
from tests.tiers import fewer
from twostroke.backends.cpu import CpuOps
from twostroke.cache.manager import CacheManager
from twostroke.engine.core import EngineCore
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.program.model import Model
from twostroke.quant.formats import weight_format
from twostroke.runner.folder import load_folder
from twostroke.runner.runner import ModelRunner
from twostroke.sampling.random_draw import sibling_seed
from twostroke.scheduler.limits import SchedulerLimits
from twostroke.scheduler.objective_policy import objective_policy
from twostroke.scheduler.policy import Policy
from twostroke.scheduler.scheduler import Scheduler
from twostroke.spec.formats import PAGE_TOKENS, KVKind
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.types.event import FinishedEvent, PromptEvent, TokenEvent
from twostroke.types.grammar import Grammar
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.request import FinishReason, Request
from twostroke.types.sampling_params import SamplingParams
from twostroke.weights.loaded import ModelWeights

CASES = [("llama3-grouped", "int8", KVKind.BF16), ("mistral-window", "int4", KVKind.F32)]
CASES += [("qwen3-head-norms", "f32", KVKind.F32), ("qwen2-biases", "bf16", KVKind.BF16)]
CASES += [("llama-head-32", "int8", KVKind.BF16)]
CASES += [("mixtral-window", "int8", KVKind.BF16), ("qwen3-moe", "int4", KVKind.INT8)]
CASES += [("llama3-grouped", "bf16", KVKind.INT8), ("mistral-window", "int8", KVKind.INT4)]
CASES += [("gpt2", "int8", KVKind.BF16), ("gpt2-odd-sizes", "int4", KVKind.INT4)]
Loaded = tuple[Model, ModelWeights]
Output = tuple[tuple[int, ...], tuple[object, ...]]
END_ID = 7
GRAMMARS = [
    Grammar.regex("([a-m]{2,9} ?){1,6}"),
    Grammar.json_schema({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 12}),
    Grammar.json_schema({"type": "object", "properties": {"ab": {"type": "string", "maxLength": 20}}}),
]
_compilers: dict[int, GrammarCompiler] = {}


class Letters:
    """A vocabulary for models that have none: letters, pairs of letters, an end."""

    special_ids = frozenset({END_ID})
    tokens_are_bytes = True

    def token_bytes(self, token_id: int) -> bytes:
        if token_id in self.special_ids:
            return b"<end>"
        first = bytes([32 + token_id % 95])
        return first if token_id < 96 else first + bytes([97 + token_id % 26])


@pytest.fixture(scope="module", autouse=True)
def compilers() -> Iterator[None]:
    yield
    for compiler in _compilers.values():
        compiler.close()
    _compilers.clear()


def fresh(request: Request, vocab: int) -> Request:
    """With a machine of its own at the beginning, where it has a grammar."""
    if request.params.grammar is None:
        return request
    if vocab not in _compilers:
        _compilers[vocab] = GrammarCompiler(Letters(), vocab, {END_ID})
    return replace(request, mask=_compilers[vocab].compile(request.params.grammar))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    made = {}
    for family, _, _ in CASES:
        made[family] = tmp_path_factory.mktemp(family)
        make_checkpoint(family, made[family])
    return made


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, CpuOps]]:
    made = {threads: CpuOps(None, threads) for threads in (1, 2)}
    yield made
    for ops in made.values():
        ops.close()


@pytest.fixture(scope="module")
def load(folders):
    return cache(lambda family, name: load_folder(folders[family], weight_format(name)))


def core(
    loaded: Loaded, kv: KVKind, ops: CpuOps, pages: int, limits: SchedulerLimits, policy: Policy | None = None
) -> EngineCore:
    spec, weights = loaded
    sizes = MemorySizes(pages, spec.max_positions, limits.max_step_tokens, limits.max_sequences)
    memory = StepMemory(spec.program, weights.matrices, weights.vectors, kv, sizes)
    runner = ModelRunner(ops.compile(spec.program, memory), memory, lambda: 0.0)
    return EngineCore(Scheduler(CacheManager(pages, PAGE_TOKENS), limits, policy), runner)


def drive(engine: EngineCore, arrivals: list[tuple[int, Request]], vocab: int = 0) -> tuple[dict[str, Output], int]:
    """Run until everything has ended; each request arrives before its step. Returns outputs and preemptions."""
    waiting = sorted(((step, fresh(request, vocab)) for step, request in arrivals), key=lambda pair: pair[0])
    tokens: dict[str, list[TokenEvent]] = {request.request_id: [] for _, request in arrivals}
    scores: dict[str, list[object]] = {request.request_id: [] for _, request in arrivals}
    ended: dict[str, FinishReason] = {}
    for step_index in range(5000):
        while waiting and waiting[0][0] <= step_index:
            engine.scheduler.add(waiting.pop(0)[1])
        step = engine.step(lambda: 0.0)
        for event in step.events if step else ():
            if isinstance(event, FinishedEvent):
                assert event.request_id not in ended
                ended[event.request_id] = event.reason
            elif isinstance(event, PromptEvent):
                assert not tokens[event.request_id]
                scores[event.request_id] += event.logprobs
            else:
                tokens[event.request_id].append(event)
        if not waiting and not engine.scheduler.has_work:
            break
    gauges = engine.scheduler.gauges()
    assert (gauges.running, gauges.waiting, gauges.pages_used, gauges.waste_tokens) == (0, 0, 0, 0)
    assert set(ended) == set(tokens) and FinishReason.ERROR not in ended.values()
    for _, request in arrivals:
        asked = request.params.prompt_logprobs is not None
        assert len(scores[request.request_id]) == (len(request.prompt_token_ids) - 1) * asked
    outputs = {
        name: (tuple(e.token_id for e in made), (*scores[name], *(e.logprob for e in made)))
        for name, made in tokens.items()
    }
    return outputs, gauges.preemptions_total


def random_requests(dice: random.Random, vocab: int) -> list[Request]:
    """Prompts that often begin alike, all kinds of sampling, some with siblings."""
    stem = [dice.randrange(vocab) for _ in range(90)]
    requests = []
    for index in range(dice.randint(2, 6)):
        shared = dice.choice([0, 0, 16, 37, 64, 64, 90])
        own = dice.choice([0, dice.randint(1, 60)]) if shared else dice.randint(1, 60)  # 0: others ask the same
        prompt = (*stem[:shared], *(dice.randrange(vocab) for _ in range(own)))
        grammar = dice.choice([None, None, *GRAMMARS])
        bad = (*((i,) for i in range(0, vocab, 5)), *((i, (i + 1) % vocab) for i in range(vocab)))
        forbidden = dice.choice([{}, {"allowed_token_ids": range(0, vocab, 3)}, {"bad_token_ids": bad[:500]}])
        params = SamplingParams(
            temperature=dice.choice([0.0, 0.7, 1.5]),
            top_k=dice.choice([0, 0, 5]),
            top_p=dice.choice([1.0, 0.9]),
            repetition_penalty=dice.choice([1.0, 1.3]),
            frequency_penalty=dice.choice([0.0, 0.5]),
            logprobs=dice.choice([0, 3]),
            prompt_logprobs=dice.choice([None, None, 0, 2]),
            grammar=grammar,
            repetition_window=dice.choice([None, 8]),
            **({} if grammar else forbidden),
        )
        seed, size = dice.getrandbits(63), dice.randint(0, 40)
        for sibling in range(dice.choice([1, 1, 1, 3])):
            name = f"{index}/{sibling}"
            made = Request(
                name, str(index), prompt, params, sibling_seed(seed, sibling), size, frozenset({END_ID}), 0.0
            )
            requests.append(made)
    return requests


@pytest.mark.parametrize(("family", "weights", "kv"), CASES)
@settings(max_examples=fewer(12, quick=4), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_schedule_gives_the_bits_of_the_solo_run(family, weights, kv, seed, load, pools):
    dice = random.Random(seed)
    loaded = load(family, weights)
    requests = random_requests(dice, loaded[0].vocab_size)
    limits = SchedulerLimits(dice.choice([4, 16, 61, 512]), dice.choice([1, 3, 4]), dice.choice([0, 2]))
    needed = max(-(-(len(r.prompt_token_ids) + r.max_tokens + 1) // PAGE_TOKENS) for r in requests)
    pages = needed + dice.choice([0, 3, 60])
    # Half of the schedules keep objectives that cut prompts at every place and order them by slack.
    promises = LatencyObjectives(100.0, dice.choice([0.01, 0.02, 0.05]))
    policy = objective_policy(LineCost(row_s=0.0003, jagged_s=0.01), promises, limits, PAGE_TOKENS)
    together = core(loaded, kv, pools[dice.choice([1, 2])], pages, limits, dice.choice([None, policy]))
    found, _ = drive(together, [(dice.randint(0, 30), request) for request in requests], loaded[0].vocab_size)
    for request in requests:
        alone = core(loaded, kv, pools[dice.choice([1, 2])], 16, SchedulerLimits(512, 1))
        expected, _ = drive(alone, [(0, request)], loaded[0].vocab_size)
        assert found[request.request_id] == expected[request.request_id]


def test_preemption_and_prefix_hits_do_happen_and_change_nothing(load, pools):
    """A directed case, so that the property above cannot pass by never meeting them."""
    loaded = load("llama3-grouped", "int8")
    stem = tuple(range(20, 90))
    params = SamplingParams(temperature=1.0, logprobs=2)
    requests = [Request(str(i), str(i), (*stem, i), params, i, 60, frozenset(), 0.0) for i in range(4)]
    engine = core(loaded, KVKind.BF16, pools[2], 16, SchedulerLimits(64, 4, 0))
    found, preemptions = drive(engine, [(3 * i, request) for i, request in enumerate(requests)])
    assert preemptions > 0
    assert engine.scheduler.gauges().prefix_hit_tokens > 0
    for request in requests:
        alone = core(loaded, KVKind.BF16, pools[1], 16, SchedulerLimits(512, 1))
        assert drive(alone, [(0, request)])[0][request.request_id] == found[request.request_id]


def test_prompt_logprobs_are_those_of_a_model_that_is_asked_token_by_token(load, pools):
    """Each prompt token's log probability is what a request for just the tokens before it would give it."""
    loaded = load("llama3-grouped", "int8")
    prompt = tuple(range(30, 110))
    engine = core(loaded, KVKind.BF16, pools[2], 40, SchedulerLimits(50, 3))
    whole = Request("w", "w", prompt, SamplingParams(temperature=0, prompt_logprobs=1), 0, 0, frozenset(), 0.0)
    warm = Request("c", "c", prompt, SamplingParams(temperature=0), 0, 1, frozenset(), 0.0)
    found, _ = drive(engine, [(0, warm), (9, whole)])
    tokens, scores = found["w"]
    assert not tokens
    for length in (1, 17, 63, 79):
        ask = SamplingParams(temperature=0, logprobs=20)
        one = Request("o", "o", prompt[:length], ask, 0, 1, frozenset(), 0.0)
        ((first,), (logprob,)) = drive(engine, [(0, one)])[0]["o"]
        assert scores[length - 1].top == ((first, logprob.logprob),)
        assert scores[length - 1].token_id == prompt[length]
        assert dict(logprob.top).get(prompt[length], scores[length - 1].logprob) == scores[length - 1].logprob


def test_a_grammar_survives_preemption(load, pools):
    """A directed case: the machine stays where the output is, and is not moved when positions are computed again."""
    loaded = load("llama3-grouped", "int8")
    params = SamplingParams(temperature=1.5, logprobs=2, grammar=Grammar.regex("[a-z]{60}(cab)*"))
    requests = [Request(str(i), str(i), (*range(20, 60), i), params, i, 70, frozenset({END_ID}), 0.0) for i in range(4)]
    engine = core(loaded, KVKind.BF16, pools[2], 16, SchedulerLimits(64, 4, 0))
    found, preemptions = drive(engine, [(3 * i, request) for i, request in enumerate(requests)], 199)
    assert preemptions > 0
    letters = Letters()
    for request in requests:
        alone = core(loaded, KVKind.BF16, pools[1], 16, SchedulerLimits(512, 1))
        assert drive(alone, [(0, request)], 199)[0][request.request_id] == found[request.request_id]
        text = b"".join(map(letters.token_bytes, found[request.request_id][0])).decode()
        assert len(text) >= 60 and set(text) <= set("abcdefghijklmnopqrstuvwxyz")


def test_an_abort_frees_its_pages_before_the_next_step(load, pools) -> None:
    loaded = load("llama3-grouped", "int8")
    engine = core(loaded, KVKind.BF16, pools[2], 200, SchedulerLimits(64, 8))
    requests = random_requests(random.Random(3), loaded[0].vocab_size)
    for request in requests:
        engine.scheduler.add(request)
    engine.step(lambda: 0.0)
    engine.step(lambda: 0.0)
    for left in range(len(requests), 0, -1):
        held = engine.scheduler.gauges().pages_used
        ended = list(engine.scheduler.abort(requests[left - 1].request_id, 0.0))
        assert [event.reason for event in ended if isinstance(event, FinishedEvent)] == [FinishReason.ABORT]
        assert engine.scheduler.gauges().pages_used <= held
    assert engine.scheduler.gauges().pages_used == 0 and not engine.scheduler.has_work
