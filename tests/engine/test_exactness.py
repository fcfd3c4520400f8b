"""The exactness law: a request's tokens and log probabilities are the same bits alone and in any schedule.

Random requests run in random schedules and are compared with each request alone on a fresh engine with enough room. The
schedules vary arrivals, step budgets and batch sizes. Pools are so small that sequences are preempted, and there are
prefix hits, siblings and grammars. The number of threads, the way to read weights and the level of kernels vary, too. A
run at a commit has families that cover every op, group of caches and format. A daily run has every architecture, by its
tiny configs in tests/models/families/whole.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.faults.guesses import Seer
from tests.models.families.covering import missing
from tests.models.families.stored import by_architecture, generating, write_checkpoint
from tests.scheduler.fakes import LineCost
from tests.tiers import COVERING, ENCODERS, TIER, levels, rest_daily, thinned
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.ops import Reading
from twostroke.backends.cpu.packer import NativePacker
from twostroke.backends.cuda.device import CudaDevice
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.core import EngineCore
from twostroke.engine.scheduler.drafts import Drafter
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.objectives.objective_policy import objective_policy
from twostroke.engine.scheduler.policy import Policy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.ops.device_memory import HOST
from twostroke.ops.program.cache_groups import FullPages, cache_groups
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import FORMATS, format_choice
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.folder import read_folder
from twostroke.runner.runner import ModelRunner
from twostroke.runner.sampling.random_draw import sibling_seed
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.types.cache_pools import window_pages
from twostroke.types.event import FinishedEvent, PromptEvent, TokenEvent
from twostroke.types.grammar import Grammar
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.request import FinishReason, Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights

PAIRS = [(weights, kv) for weights in FORMATS for kv in KVKind]


def in_pairs(families: Iterable[str]) -> list[tuple[str, str, KVKind]]:
    """Each family in one pair of formats, in turn. The seed chooses the first pair."""
    return [(family, *PAIRS[(TIER.seed + 7 * place) % len(PAIRS)]) for place, family in enumerate(families)]


CASES = in_pairs(COVERING * 2)
"""The law follows from ops, groups of caches and formats; these families and pairs have them all."""
EACH = in_pairs(thinned(families, "exactness", 1)[0] for families in generating().values())
"""One family of each architecture. The seed chooses families and pairs."""
Loaded = tuple[Model, ModelWeights]
Load = Callable[[str, str], Loaded]
Pools = dict[tuple[str, int], CpuOps]
Output = tuple[tuple[int, ...], tuple[object, ...]]
END_ID = 7
GRAMMARS = [
    Grammar.regex("([a-m]{2,9} ?){1,6}"),
    Grammar.json_schema({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 12}),
    Grammar.json_schema({"type": "object", "properties": {"ab": {"type": "string", "maxLength": 20}}}),
]
SAMPLERS: list[dict[str, Any]] = [
    {},
    {},
    {"typical_p": 0.8, "xtc_probability": 0.5, "xtc_threshold": 0.01},
    {"top_n_sigma": 1.5, "dynatemp_range": 0.5},
    {"dry_multiplier": 0.7, "dry_penalty_last_n": -1, "dry_allowed_length": 1},
    {"mirostat": 2, "mirostat_tau": 4.0},
    {"mirostat": 1, "mirostat_tau": 4.0},
    {"adaptive_target": 0.2, "typical_p": 0.95},
]
_compilers: dict[int, GrammarCompiler] = {}


class Letters:
    """A vocabulary for models that have none: letters, pairs of letters, and an end token."""

    special_ids = frozenset({END_ID})
    tokens_are_bytes = True

    def token_bytes(self, token_id: int) -> bytes:
        if token_id in self.special_ids:
            return b"<end>"
        first = bytes([32 + token_id % 95])
        return first if token_id < 96 else first + bytes([97 + token_id % 26])

    def rows_bytes(self, num_rows: int) -> list[bytes]:
        return [self.token_bytes(token_id) for token_id in range(num_rows)]


@pytest.fixture(scope="module", autouse=True)
def compilers() -> Iterator[None]:
    yield
    for compiler in _compilers.values():
        compiler.close()
    _compilers.clear()


def fresh(request: Request, vocab: int) -> Request:
    """The request with a new automaton of its grammar at its beginning, where it has a grammar."""
    if request.params.grammar is None:
        return request
    if vocab not in _compilers:
        _compilers[vocab] = GrammarCompiler(Letters(), vocab, {END_ID})
    return replace(request, mask=_compilers[vocab].compile(request.params.grammar))


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    """A backend for each level of kernels and number of threads."""
    made = {(level, threads): CpuOps(level, threads) for level in levels() for threads in (1, 2)}
    yield made
    for ops in made.values():
        ops.close()


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    """Returns load(family, weights). A checkpoint is made once, and its weights are packed once for each format."""

    @cache
    def folder(family: str) -> Path:
        made = tmp_path_factory.mktemp(family)
        write_checkpoint(family, made)
        return made

    @cache
    def loaded(family: str, weights: str) -> Loaded:
        model = read_folder(folder(family))
        with Checkpoint.open(folder(family)) as checkpoint:
            return model, load_weights(checkpoint, model, format_choice(weights), packer)

    packer = NativePacker(None, 1)
    yield loaded
    packer.close()


def core(
    loaded: Loaded,
    kv: KVKind,
    ops: CpuOps | CudaDevice,
    pages: int,
    limits: SchedulerLimits,
    policy: Policy | None = None,
    drafter: Drafter | None = None,
) -> EngineCore:
    spec, weights = loaded
    groups = cache_groups(spec.program)
    # A window's pool may be as small as one window and one more page; chunks are then shorter.
    counts = tuple(
        max(pages, window_pages(each.window, 1, PAGE_TOKENS)) if each.window else pages for each in groups.pages
    )
    slots = limits.max_sequences + pages // 4
    cache = CacheManager(groups.pools(counts, slots, limits.max_step_tokens), PAGE_TOKENS)
    step = (limits.max_step_tokens, limits.max_sequences)
    sizes = MemorySizes(counts, spec.max_positions, *step, slots, limits.max_draft_tokens)
    where = ops if isinstance(ops, CudaDevice) else HOST
    memory = StepMemory(spec.program, weights.matrices, weights.vectors, kv, sizes, where)
    runner = ModelRunner(ops.compile(spec.program, memory), memory, lambda: 0.0)
    return EngineCore(Scheduler(cache, limits, policy, drafter), runner)


def drive(engine: EngineCore, arrivals: list[tuple[int, Request]], vocab: int = 0) -> tuple[dict[str, Output], int]:
    """Runs until everything has ended. Each request arrives before its step. Returns outputs and preemptions."""
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
        if not waiting and not engine.has_work:
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
    """Prompts that often have a common beginning, with all kinds of sampling, some with siblings."""
    stem = [dice.randrange(vocab) for _ in range(90)]
    requests = []
    for index in range(dice.randint(2, 6)):
        shared = dice.choice([0, 0, 16, 37, 64, 64, 90])
        own = dice.choice([0, dice.randint(1, 60)]) if shared else dice.randint(1, 60)  # 0: others ask the same prompt
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
            **dice.choice(SAMPLERS),
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


def drawn(dice: random.Random, pools: Pools, level: str) -> CpuOps:
    """Any number of threads and any way to read weights, because the bits of one level are the same."""
    ops = pools[level, dice.choice([1, 2])]
    ops.read_weights(dice.choice(list(Reading)))
    return ops


@pytest.mark.parametrize(("family", "weights", "kv"), rest_daily(dict.fromkeys([*CASES, *EACH]), CASES))
def test_any_schedule_gives_the_bits_of_the_solo_run(family, weights, kv, load, pools):
    """One schedule for each case; the seed chooses it."""
    dice = random.Random(f"{TIER.seed} {family} {weights} {kv}")
    # They have dice of their own, so that a machine with more levels draws the same requests.
    loaded, level = load(family, weights), random.Random(f"level {family} {kv}").choice(levels())
    requests = random_requests(dice, loaded[0].vocab_size)
    step_tokens, sequences = dice.choice([4, 16, 61, 512]), dice.choice([1, 3, 4])
    limits = SchedulerLimits(step_tokens, sequences, dice.choice([0, 2]), dice.choice([0, 2, 24]))
    needed = max(-(-(len(r.prompt_token_ids) + r.max_tokens + 1) // PAGE_TOKENS) for r in requests)
    pages = needed + dice.choice([0, 3, 60])
    # Half of the schedules keep objectives, which cut prompts at every place and order them by slack.
    promises = LatencyObjectives(100.0, dice.choice([0.01, 0.02, 0.05]))
    policy = objective_policy(LineCost(row_s=0.0003, jagged_s=0.01), promises, limits, PAGE_TOKENS)
    expected = {}
    for request in requests:
        alone = core(loaded, kv, drawn(dice, pools, level), 16, SchedulerLimits(512, 1))
        expected |= drive(alone, [(0, request)], loaded[0].vocab_size)[0]
    seer = seer_of(expected, dice.choice([0.0, 0.6, 0.9, 1.0]), dice, loaded[0].vocab_size)
    together = core(loaded, kv, drawn(dice, pools, level), pages, limits, dice.choice([None, policy]), seer)
    found, _ = drive(together, [(dice.randint(0, 30), request) for request in requests], loaded[0].vocab_size)
    for request in requests:
        assert found[request.request_id] == expected[request.request_id]


def seer_of(outputs: dict[str, Output], right: float, dice: random.Random, vocab: int) -> Seer:
    """A proposer that guesses these outputs, and after their end the end token."""

    def next_token(request: Request, known: Sequence[int]) -> int:
        output, at = outputs[request.request_id][0], len(known) - len(request.prompt_token_ids)
        return output[at] if at < len(output) else END_ID

    return Seer(next_token, right, dice, vocab)


STATES = ("mamba2", "qwen3-next", "falcon-h1")


@pytest.mark.parametrize(
    ("family", "right"),
    [*(("llama3-grouped", share) for share in (0.0, 0.7, 1.0)), *((name, 0.7) for name in STATES)],
)
def test_guesses_change_nothing_but_the_number_of_steps(load, pools, family, right):
    """A case made for this: grammars, penalties, bans, log probabilities, end tokens, and a pool that is too small; and
    states, which go back after a wrong guess."""
    loaded, level = load(family, "int8"), levels()[-1]
    vocab, dice = loaded[0].vocab_size, random.Random(7)
    requests = [request for _ in range(4) for request in random_requests(dice, vocab)]
    requests = [replace(each, request_id=f"{i}/{each.request_id}", max_tokens=60) for i, each in enumerate(requests)]
    engine = core(loaded, KVKind.BF16, pools[level, 2], 14, SchedulerLimits(64, 4, 0))
    expected, preemptions = drive(engine, [(0, request) for request in requests], vocab)
    plain = engine.scheduler._num_steps
    seer = seer_of(expected, right, dice, vocab)
    engine = core(loaded, KVKind.BF16, pools[level, 1], 14, SchedulerLimits(64, 4, 0, 12), None, seer)
    found, preemptions = drive(engine, [(0, request) for request in requests], vocab)
    assert found == expected and (preemptions > 0 or not cache_groups(loaded[0].program).pages)
    assert seer.guessed > 100 and (seer.accepted > 0) == (right > 0)
    assert engine.scheduler._num_steps < plain if right == 1.0 else True


@pytest.mark.parametrize("family", thinned(COVERING, "directed", 3 if TIER.quick else len(COVERING)))
def test_preemption_and_prefix_hits_do_happen_and_change_nothing(family, load, pools):
    """A case made for each, so that the property above cannot pass only because it never meets them."""
    loaded, level = load(family, "int8"), levels()[-1]
    stem = tuple(range(20, 90))
    params = SamplingParams(temperature=1.0, logprobs=2)
    requests = [Request(str(i), str(i), (*stem, i), params, i, 60, frozenset(), 0.0) for i in range(4)]
    engine = core(loaded, KVKind.BF16, pools[level, 2], 16, SchedulerLimits(64, 4, 0))
    found, preemptions = drive(engine, [(3 * i, request) for i, request in enumerate(requests)])
    assert engine.scheduler.gauges().prefix_hit_tokens > 0
    if any(isinstance(each, FullPages) for each in cache_groups(loaded[0].program).pages):
        assert preemptions > 0
    for request in requests:
        alone = core(loaded, KVKind.BF16, pools[level, 1], 16, SchedulerLimits(512, 1))
        assert drive(alone, [(0, request)])[0][request.request_id] == found[request.request_id]


def test_every_architecture_and_every_pair_of_formats_is_under_the_law() -> None:
    families = {family for family, _, _ in EACH}
    for architecture, known in generating().items():
        assert families & set(known), architecture
    assert {(weights, kv) for _, weights, kv in CASES} == set(PAIRS)


@pytest.mark.slow
def test_every_op_and_every_group_of_caches_is_under_the_law() -> None:
    """tests/models/families/covering.py alone has all of them. A family with a new one belongs there."""
    assert missing(COVERING) == set()
    assert missing((*COVERING, *ENCODERS), by_architecture().values()) == set()


def test_prompt_logprobs_are_those_of_a_model_that_is_asked_token_by_token(load, pools):
    """Each prompt token's log probability is the one that a request for only the tokens before it would give."""
    loaded = load("llama3-grouped", "int8")
    prompt = tuple(range(30, 110))
    engine = core(loaded, KVKind.BF16, pools[levels()[-1], 2], 40, SchedulerLimits(50, 3))
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
    """A case made for this: the automaton stays where the output is, and does not move when positions are computed
    again."""
    loaded = load("llama3-grouped", "int8")
    params = SamplingParams(temperature=1.5, logprobs=2, grammar=Grammar.regex("[a-z]{60}(cab)*"))
    requests = [Request(str(i), str(i), (*range(20, 60), i), params, i, 70, frozenset({END_ID}), 0.0) for i in range(4)]
    engine = core(loaded, KVKind.BF16, pools[levels()[-1], 2], 12, SchedulerLimits(64, 4, 0))
    found, preemptions = drive(engine, [(3 * i, request) for i, request in enumerate(requests)], 199)
    assert preemptions > 0
    letters = Letters()
    for request in requests:
        alone = core(loaded, KVKind.BF16, pools[levels()[-1], 1], 16, SchedulerLimits(512, 1))
        assert drive(alone, [(0, request)], 199)[0][request.request_id] == found[request.request_id]
        text = b"".join(map(letters.token_bytes, found[request.request_id][0])).decode()
        assert len(text) >= 60 and set(text) <= set("abcdefghijklmnopqrstuvwxyz")


def test_an_abort_frees_its_pages_before_the_next_step(load, pools) -> None:
    loaded = load("llama3-grouped", "int8")
    engine = core(loaded, KVKind.BF16, pools[levels()[-1], 2], 200, SchedulerLimits(64, 8))
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
