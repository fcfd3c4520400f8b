"""One run of the study of objectives: a trace under one policy, simulated or with the real engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from twostroke.assembly import engine as assemble
from twostroke.assembly.find import find_model
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Part, Segment, StepCost, StepPrediction
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.core import EngineCore
from twostroke.engine.executor import Executor
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.objectives.objective_policy import objective_policy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.stepper import Stepper
from twostroke.lab.sim.clock import VirtualClock
from twostroke.lab.sim.predicted import PredictedExecutor, invented_token
from twostroke.lab.workload.arrange import Arrangement, arranged
from twostroke.lab.workload.draws import Draws
from twostroke.lab.workload.figures import run_seconds
from twostroke.lab.workload.objectives import Objectives, met
from twostroke.lab.workload.observation import Observation
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.summary import percentile
from twostroke.lab.workload.synthetic import NAMED, Load
from twostroke.models.common.registry import read_model
from twostroke.models.common.work import work_of
from twostroke.types.errors import Overloaded
from twostroke.types.event import FinishedEvent, PromptEvent, TokenEvent
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.output import Prompt
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.result import StepResult
from twostroke.types.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.types.spec.hardware import find_hardware
from twostroke.types.spec.hardware_catalogue import CATALOGUE

BUDGETS = (64, 128, 256, 512, 1024, 2048)
GREEDY = SamplingParams(temperature=0.0)
SIM_OBJECTIVES = LatencyObjectives(1.0, 0.05)
BATCH_E2E_S = 60.0
MAX_SEQUENCES = 256
KV_TOKENS = 320_000
NOISE = 0.1
"""The share by which the times of steps scatter."""
COLD_S, COLD_FACTOR = 3.0, 4.0
"""For the first COLD_S seconds, a cold machine takes COLD_FACTOR times as long. A machine is cold, for example, while
the KV pool is made ready."""
GUESS_PREFILL, GUESS_DECODE = 1 / 2.3, 2.0
"""The guessed time of steps with and without prompts, as a factor of the true time."""
LIMIT_FACTOR = 4
"""max_tokens of a request, as a factor of its answer's length. Clients do not know how long their answers will be."""
END_TOKEN = 7

SHAPES = {"8b": (4096, 32, 32, 8, 14336, False), "1b": (2048, 16, 32, 8, 8192, True)}
"""hidden, layers, heads, KV heads, intermediate, tied: the shapes of the Llama 3 family."""


@dataclass(frozen=True)
class Machine:
    """A machine of the catalogue with a model on it. cold: whether the machine has just started."""

    name: str
    model: str
    weights: str
    cold: bool = False


@dataclass(frozen=True)
class SimRun:
    """A simulated run. policy: a token budget, `objectives` with a measured cost model, or `guessed`, which is
    objectives with a guessed cost model."""

    machine: Machine
    trace: str
    rate_per_s: float
    count: int
    seed: int
    policy: str


@dataclass(frozen=True)
class RealRun:
    """A run of spark with the real engine."""

    trace: str
    rate_per_s: float
    count: int
    seed: int
    policy: str
    promised: LatencyObjectives


@dataclass(frozen=True)
class Tally:
    """The figures of one run. kept_share: the share of the answered interactive requests that met both objectives.

    ttft_p50_s, ttft_p99_s: the TTFT of interactive requests that were answered. requests_per_s: the number of all
    requests divided by the seconds to the last end.
    """

    good_share: float
    kept_share: float
    refused_share: float
    ttft_p50_s: float
    ttft_p99_s: float
    requests_per_s: float


class NoisyMachine:
    """A StepCost for the executor only: the times of steps scatter around the model's prediction."""

    def __init__(self, cost: StepCost, seed: int) -> None:
        self._cost = cost
        self._draws = Draws(seed, "noise")

    def predict(self, segments: Sequence[Part]) -> StepPrediction:
        """Returns the model's prediction, made longer or shorter by chance."""
        return _scaled(self._cost.predict(segments), max(0.5, 1 + NOISE * self._draws.normal()))

    def decode_run(self, starts: Sequence[int], steps: int) -> Iterator[float]:
        """Each step has noise of its own."""
        for done in range(steps):
            yield self.predict_beside([start + done for start in starts], ()).seconds

    def predict_beside(self, starts: Sequence[int], segments: Sequence[Part]) -> StepPrediction:
        """Returns the time of one step with all of these decodes and segments."""
        return self.predict([*segments, *(Segment.decode(start) for start in starts)])


class Guess:
    """A StepCost for the policy only, of a machine that was not measured."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost

    def predict(self, segments: Sequence[Part]) -> StepPrediction:
        """Returns a time that is too short for steps with prompts and too long for steps without."""
        prefills = any(each.role is Role.PREFILL for each in segments)
        return _scaled(self._cost.predict(segments), GUESS_PREFILL if prefills else GUESS_DECODE)


class ColdStart:
    """An executor whose first seconds are slow. It marks the slow steps, as the engine does."""

    def __init__(self, inner: Executor, clock: VirtualClock) -> None:
        self._inner, self._clock = inner, clock
        self._until_s: float | None = None

    def execute(self, plan: Plan) -> StepResult:
        """Executes a step. A slow step is marked in its result."""
        begin_s = self._clock.now_s
        result = self._inner.execute(plan)
        if self._until_s is None:
            self._until_s = begin_s + COLD_S
        if begin_s >= self._until_s:
            return result
        self._clock.advance((COLD_FACTOR - 1) * (self._clock.now_s - begin_s))
        return replace(result, cold=True)


def _scaled(prediction: StepPrediction, factor: float) -> StepPrediction:
    return StepPrediction(tuple(replace(part, seconds=part.seconds * factor) for part in prediction.parts))


def run_sim(run: SimRun) -> Tally:
    """Simulates a run under the virtual clock."""
    cost = _cost(run.machine)
    limits, policy = SchedulerLimits(2048, MAX_SEQUENCES), None
    if run.policy.isdigit():
        budget = int(run.policy)
        limits = SchedulerLimits(budget, min(budget, MAX_SEQUENCES))
    else:
        guessed = run.policy == "guessed"
        said = Guess(cost) if guessed else cost
        policy = objective_policy(said, SIM_OBJECTIVES, limits, PAGE_TOKENS, guessed=guessed)
    clock = VirtualClock()
    workload = NAMED[run.trace](Load(run.rate_per_s, run.count, run.seed))
    scheduler = Scheduler(CacheManager(KV_TOKENS // PAGE_TOKENS, PAGE_TOKENS), limits, policy)
    executor: Executor = PredictedExecutor(NoisyMachine(cost, run.seed), clock, _token_of(workload))
    core = EngineCore(scheduler, ColdStart(executor, clock) if run.machine.cold else executor)
    return tally(_simulate(workload, scheduler, core, clock), SIM_OBJECTIVES)


def capacity(machine: Machine, trace: str, count: int) -> float:
    """Returns the rate at which the requests of the trace would arrive as fast as they are answered when all are there
    from the beginning."""
    answered = run_sim(SimRun(machine, trace, 1e6, count, 1, "512")).requests_per_s
    arrivals = [asked.arrival_s for asked in NAMED[trace](Load(1.0, count, 1))]
    return answered * arrivals[-1] / count


def _token_of(workload: Sequence[WorkloadRequest]) -> Callable[[PlannedSequence, int], int]:
    """Returns a function that gives the token after the known tokens and `place` more: an end token after the last
    token of the answer."""

    def token(sequence: PlannedSequence, place: int) -> int:
        whole = sequence.num_output_tokens + place >= workload[int(sequence.request.request_id)].output_tokens
        return END_TOKEN if whole else invented_token(sequence, place)

    return token


def _simulate(
    workload: Sequence[WorkloadRequest], scheduler: Scheduler, core: EngineCore, clock: VirtualClock
) -> list[Observation]:
    notes = {str(number): _Note(asked) for number, asked in enumerate(workload)}
    todo = [_heart_request(asked, number) for number, asked in enumerate(workload)]
    todo.reverse()
    while todo or scheduler.has_work:
        if not scheduler.has_work:
            clock.advance_to(todo[-1].arrival_s)
        while todo and todo[-1].arrival_s <= clock.now_s:
            request = todo.pop()
            try:
                scheduler.add(request)
            except Overloaded:
                notes[request.request_id].refuse(clock.now_s)
        step = core.step(clock) if scheduler.has_work else None
        for event in step.events if step else ():
            if isinstance(event, PromptEvent):
                continue
            note = notes[event.request_id]
            if isinstance(event, TokenEvent):
                note.times_s.append(event.at_s)
            note.ended_s = event.at_s
            if isinstance(event, FinishedEvent) and event.retry_after_s is not None:
                note.refuse(event.at_s)
    return [note.observation() for note in notes.values()]


def _heart_request(asked: WorkloadRequest, number: int) -> Request:
    size = asked.block_tokens
    own = (1 << 50) + (number << 24)
    ids = [token for block in asked.block_ids for token in range(block * size, (block + 1) * size)]
    tokens = tuple(ids[: asked.prompt_tokens]) or tuple(range(own, own + asked.prompt_tokens))
    name = str(number)
    limit, ends = LIMIT_FACTOR * asked.output_tokens, frozenset({END_TOKEN})
    return Request(name, name, tokens, GREEDY, number, limit, ends, asked.arrival_s, priority=asked.priority)


def run_real(run: RealRun) -> Tally:
    """Runs spark in this process, by the wall clock. Prompts are random tokens; every answer has the length of the
    trace."""
    options: dict[str, str] = {"max_step_tokens": "2048"}
    if run.policy.isdigit():
        options = {"max_step_tokens": run.policy, "max_sequences": str(min(64, int(run.policy)))}
    else:
        options |= {"ttft": f"{run.promised.ttft_s}s", "itl": f"{run.promised.itl_s}s"}
    load = NAMED[run.trace](Load(run.rate_per_s, run.count, run.seed, tokens=0.5))
    workload = arranged(load, Arrangement(max_context_tokens=2000))
    with assemble.build_heart(find_model("spark", options), None, assemble.print_report) as heart:
        vocabulary = heart.spec.vocab_size
        prompts = [_prompt(asked, number, vocabulary) for number, asked in enumerate(workload)]
        return tally(_serve(workload, prompts, heart.stepper), run.promised)


def _prompt(asked: WorkloadRequest, number: int, vocabulary: int) -> Prompt:
    draws = Draws(number, "prompt")
    tokens = tuple(100 + draws.below(vocabulary - 200) for _ in range(asked.prompt_tokens))
    params = SamplingParams(temperature=0.0, max_tokens=asked.output_tokens, ignore_eos=True)
    return Prompt(tokens, params, str(number), priority=asked.priority)


def _serve(workload: Sequence[WorkloadRequest], prompts: Sequence[Prompt], stepper: Stepper) -> list[Observation]:
    notes = [_Note(asked) for asked in workload]
    begin_s, sent = time.perf_counter(), 0
    while sent < len(notes) or stepper.has_work:
        now_s = time.perf_counter() - begin_s
        while sent < len(notes) and workload[sent].arrival_s <= now_s:
            try:
                stepper.submit(prompts[sent], begin_s + workload[sent].arrival_s)
            except Overloaded:
                notes[sent].refuse(now_s)
            sent += 1
        if not stepper.has_work:
            time.sleep(max(0.0, min(0.001, workload[sent].arrival_s - now_s)) if sent < len(notes) else 0)
            continue
        deltas = stepper.step() or []
        now_s = time.perf_counter() - begin_s
        for delta in deltas:
            note = notes[int(delta.request_id)]
            note.times_s += [now_s] * len(delta.token_ids)
            note.ended_s = now_s
    return [note.observation() for note in notes]


class _Note:
    """The events of one request."""

    def __init__(self, asked: WorkloadRequest) -> None:
        self.asked = asked
        self.times_s: list[float] = []
        self.ended_s = asked.arrival_s
        self.error = ""

    def refuse(self, now_s: float) -> None:
        """Note that the request was refused."""
        self.error, self.ended_s = "refused", now_s

    def observation(self) -> Observation:
        """Returns the observation as a client would have made it."""
        at_s, priority = self.asked.arrival_s, self.asked.priority
        return Observation(at_s, at_s, self.ended_s, tuple(self.times_s), error=self.error, priority=priority)


def tally(seen: Sequence[Observation], promised: LatencyObjectives) -> Tally:
    """Returns the figures of a run. Batch work is good when it ends within a minute."""
    wanted = Objectives(promised.ttft_s, promised.itl_s)
    good = sum(met(each, wanted if each.priority <= 0 else Objectives(e2e_s=BATCH_E2E_S)) for each in seen)
    answered = [each for each in seen if each.priority <= 0 and each.error != "refused"]
    kept = sum(met(each, wanted) for each in answered)
    times = sorted(each.ttft_s for each in seen if each.ttft_s is not None and each.priority <= 0)
    refused = sum(each.error == "refused" for each in seen)
    return Tally(
        good / len(seen),
        kept / max(1, len(answered)),
        refused / len(seen),
        percentile(times, 0.5),
        percentile(times, 0.99),
        len(seen) / run_seconds(seen),
    )


@cache
def _cost(machine: Machine) -> StepCost:
    hidden, layers, heads, kv_heads, wide, tied = SHAPES[machine.model]
    spec = read_model(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "torch_dtype": "bfloat16",
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": wide,
            "vocab_size": 128_256,
            "max_position_embeddings": 131_072,
            "rope_theta": 500_000.0,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "tie_word_embeddings": tied,
        }
    )
    return step_cost(work_of(spec, machine.weights, KVKind.BF16), find_hardware(machine.name, CATALOGUE))
