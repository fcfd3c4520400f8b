"""An engine in virtual time, with the real scheduler, cache, session and ledger. The executor takes as long as a cost
model predicts, plus any delay that a test injects."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twostroke.cost.history.account import Account
from twostroke.cost.history.ledger import Ledger
from twostroke.cost.history.step_history import device_seconds
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import StepCost
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.limits import EngineLimits
from twostroke.engine.resources import Seeds
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.session import Session
from twostroke.engine.step_loop import StepLoop
from twostroke.engine.stepper import Stepper
from twostroke.models.common.registry import read_model
from twostroke.models.common.work import work_of
from twostroke.types.output import Delta, Prompt
from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken, StepResult
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.types.spec.hardware_catalogue import CATALOGUE

from ..text.kinds import make

SPEC = read_model(
    {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 32_000,
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 8192,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "torch_dtype": "bfloat16",
    }
)
MACHINE = next(hardware for hardware in CATALOGUE if hardware.name == "xeon-8480+")
COST = step_cost(work_of(SPEC, "int8", KVKind.BF16), MACHINE)
TOKENIZER = make("byte_level")
SAMPLING_S = 1e-4


@dataclass
class VirtualClock:
    """A clock that a test sets. It also advances by `tick_s` at each reading, which is the host's time."""

    now: float = 100.0
    tick_s: float = 2e-5

    def __call__(self) -> float:
        self.now += self.tick_s
        return self.now


@dataclass
class PricedExecutor:
    """Executes with predicted times. `slower` multiplies the prediction for a plan."""

    clock: VirtualClock
    cost: StepCost = COST
    slower: Callable[[Plan], float] = lambda plan: 1.0
    delayed_s: Callable[[Plan], float] = lambda plan: 0.0  # the time in which the processor runs another program

    def execute(self, plan: Plan) -> StepResult:
        delayed_s = self.delayed_s(plan)
        model_s = device_seconds(self.cost.predict(plan.sequences)) * self.slower(plan) + delayed_s
        self.clock.now += model_s + SAMPLING_S
        sampled = {
            s.request.request_id: (SampledToken(65 + s.num_output_tokens % 20),) for s in plan.sequences if s.samples
        }
        return StepResult(sampled, model_s=model_s, sampling_s=SAMPLING_S, delayed_s=delayed_s)


@dataclass
class Lab:
    """One engine. `at(seconds, action)` calls the action between steps, when virtual time has come so far."""

    num_pages: int = 512
    max_step_tokens: int = 512
    max_sequences: int = 16
    clock: VirtualClock = field(default_factory=VirtualClock)
    deltas: list[Delta] = field(default_factory=list)
    zero_s: float = 100.0  # the time from which `at` counts
    ledger: Ledger = field(default_factory=lambda: Ledger(COST))

    def __post_init__(self) -> None:
        limits = SchedulerLimits(self.max_step_tokens, self.max_sequences)
        self.cache = CacheManager(self.num_pages, PAGE_TOKENS)
        self.scheduler = Scheduler(self.cache, limits)
        self.executor = PricedExecutor(self.clock)
        pool_tokens = self.num_pages * PAGE_TOKENS
        self.session = Session(
            self.scheduler,
            TOKENIZER,
            EngineLimits(8192, TOKENIZER.vocab_size, pool_tokens, frozenset()),
            seeds=Seeds(lambda: 1, lambda seed, index: seed + index),
            ledger=self.ledger,
        )
        self.stepper = Stepper(StepLoop(self.scheduler, self.executor, self.clock), self.session)
        self._actions: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._actions, (self.zero_s + seconds, next(self._numbers), action))

    def submit(self, name: str, tokens: Sequence[int], max_tokens: int, n: int = 1, priority: int = 0) -> None:
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, n=n, temperature=0.0 if n == 1 else 1.0)
        self.stepper.submit(Prompt(tuple(tokens), params, name, priority=priority))

    def request(self, seconds: float, name: str, tokens: Sequence[int], max_tokens: int, n: int = 1) -> None:
        """Submits a request later. Its arrival is at that time even if a step was under way."""
        arrival_s = self.zero_s + seconds

        def submit() -> None:
            params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, n=n, temperature=0.0 if n == 1 else 1.0)
            self.stepper.submit(Prompt(tuple(tokens), params, name), arrival_s)

        self.at(seconds, submit)

    def run(self) -> None:
        """Runs until nothing is left to do."""
        while self._actions or self.stepper.has_work:
            if not self.stepper.has_work:
                self.clock.now = max(self.clock.now, self._actions[0][0])
            while self._actions and self._actions[0][0] <= self.clock.now:
                heapq.heappop(self._actions)[2]()
            if self.stepper.has_work:
                self.deltas += self.stepper.step() or []

    def account(self, name: str) -> Account:
        (account,) = self.ledger.accounts.find(name)
        return account


def text(seed: int, length: int) -> list[int]:
    """Token ids that no other text has."""
    return [10 + (seed * 7919 + i * 104_729 + i * i * seed) % 200 for i in range(length)]
