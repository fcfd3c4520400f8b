"""Measures how well the simulator predicts: it runs the same held-out workload with the real engine in real time.

    python -m tools.measure_simulator [--workload steady-chat] [--rate 20] [--requests 300] [--rounds 3] [--threads 2]
                                      [--fresh] [--json]

The real engine is in this process, stepped as the server's thread steps it, without HTTP; times are those of the
commits. The simulator knows the calibration that `twostroke doctor` measured (--fresh measures it again first) and
nothing of this workload. Rounds alternate, and each real round is compared with the simulation. Other work on the
machine shows as a spread between rounds. The exit code is 1 when the median of a figure is off by more than the target.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from twostroke.assembly.engine import build_heart
from twostroke.assembly.find import find_model
from twostroke.cli.shared.garbage import lasting_heap
from twostroke.cost.history.record import StepRecord
from twostroke.cost.history.record_json import Record
from twostroke.cost.model_cost import step_cost
from twostroke.engine.observer import NoObserver
from twostroke.engine.stepper import Stepper
from twostroke.lab.planner.ask import make_ask
from twostroke.lab.planner.doctor.machine import ThisMachine
from twostroke.lab.sim.fleet.fleet import Fleet, FleetPlan
from twostroke.lab.sim.fleet.routing import LeastLoaded
from twostroke.lab.sim.replay import step_errors
from twostroke.lab.sim.setup import Sizes, replica_setup
from twostroke.lab.workload.draws import Draws
from twostroke.lab.workload.figures import figures
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.summary import Summary, summary
from twostroke.lab.workload.synthetic import NAMED, Load
from twostroke.models.common.work import work_of
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

TARGET = 0.10
CONTEXT = 2048
SLEEP_S = 0.0005
ROWS, SEQUENCES = 512, 64


@dataclass
class Ears(NoObserver):
    """Records the times of first and next tokens of the real engine."""

    ttft_s: list[float] = field(default_factory=list)
    itl_s: list[float] = field(default_factory=list)

    def on_first_token(self, ttft_s: float, /) -> None:
        """Record the time from the arrival to the first token, in seconds."""
        self.ttft_s.append(ttft_s)

    def on_next_tokens(self, gaps_s: Sequence[float], /) -> None:
        """Record the times from the tokens before, in seconds."""
        self.itl_s.extend(gaps_s)


@dataclass(frozen=True)
class Round:
    """The results of one run with the real engine."""

    ttft: Summary
    itl: Summary
    records: list[Record]


def prompts_of(load: list[WorkloadRequest], vocabulary: int, seed: int) -> list[Prompt]:
    """Returns prompts of random tokens. Equal blocks have equal tokens, as in the simulation."""
    found = []
    for number, asked in enumerate(load):
        ids: list[int] = []
        for block in asked.block_ids:
            draws = Draws(block, f"block {seed}")
            ids += [draws.below(vocabulary) for _ in range(asked.block_tokens)]
        draws = Draws(number, f"own {seed}")
        ids = ids[: asked.prompt_tokens]
        ids += [draws.below(vocabulary) for _ in range(asked.prompt_tokens - len(ids))]
        params = SamplingParams(temperature=0.0, max_tokens=asked.output_tokens, ignore_eos=True, seed=1)
        found.append(Prompt(tuple(ids), params, priority=asked.priority))
    return found


def _play(stepper: Stepper, prompts: list[Prompt], load: list[WorkloadRequest]) -> float:
    """Submit each request at its time, as the server's thread would. Returns the time at which the run began."""
    begin_s, index = time.perf_counter(), 0
    while index < len(load) or stepper.has_work:
        now_s = time.perf_counter() - begin_s
        while index < len(load) and load[index].arrival_s <= now_s:
            stepper.submit(prompts[index], begin_s + load[index].arrival_s)
            index += 1
        if stepper.has_work:
            stepper.step()
        else:
            time.sleep(min(SLEEP_S, max(0.0, load[index].arrival_s - now_s)))
    return begin_s


def real_run(model: str, options: dict[str, Any], load: list[WorkloadRequest], seed: int) -> Round:
    """Runs the whole workload in real time on a new engine."""
    ears = Ears()
    with build_heart(find_model(model, options), None, lambda sentence: None, ears) as heart:
        stepper = heart.stepper
        records: list[Record] = []
        prompts = prompts_of(load, heart.spec.vocab_size, seed)
        warm = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        for length in (32, 300, 700):
            stepper.submit(Prompt(tuple(range(2, 2 + length)), warm))
            while stepper.has_work:
                stepper.step()
        ears.ttft_s.clear()
        ears.itl_s.clear()
        with lasting_heap():
            begin_s = _play(stepper, prompts, load)
        records += list(stepper.session.ledger.history.records())
    ttft, itl = summary(ears.ttft_s), summary(ears.itl_s)
    if ttft is None or itl is None:
        raise SystemExit("the workload has no answers of two tokens")
    return Round(ttft, itl, [each for each in records if isinstance(each, StepRecord) and each.begin_s >= begin_s])


def compare(rounds: list[Round], ttft: Summary, itl: Summary) -> dict[str, dict[str, float]]:
    """Returns each figure with the error of the simulation against the median of the real rounds. spread: the largest
    real round divided by the smallest."""
    found = {}
    for name in ("ttft", "itl"):
        for place in ("p50", "p99"):
            real = [getattr(getattr(each, name), place) for each in rounds]
            simulated = getattr(ttft if name == "ttft" else itl, place)
            middle = statistics.median(real)
            found[f"{name} {place}"] = {
                "real_s": middle,
                "simulated_s": simulated,
                "error": simulated / middle - 1,
                "spread": max(real) / min(real),
            }
    return found


def run() -> int:
    """Measure and print. The exit code tells whether the target is met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="spark")
    parser.add_argument("--weights", default=None)
    parser.add_argument("--workload", choices=sorted(NAMED), default="steady-chat")
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--tokens", type=float, default=1.0, help="scales all lengths")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None, help="of both [default: cores of this process]")
    parser.add_argument("--fresh", action="store_true", help="measure this machine again first")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    here = ThisMachine.read(asked.threads)
    calibration = here.measure(lambda *_: None)[0] if asked.fresh else here.kept_or_measured(lambda *_: None)
    named = NAMED[asked.workload](Load(asked.rate, asked.requests, asked.seed, asked.tokens))
    load = [each for each in named if each.prompt_tokens + each.output_tokens <= CONTEXT]
    options: dict[str, Any] = {"context": CONTEXT, "max_step_tokens": ROWS, "max_sequences": SEQUENCES}
    options |= {"weights": asked.weights} if asked.weights else {}
    options |= {"threads": asked.threads} if asked.threads else {}
    found = find_model(asked.model, options)
    settings = found.resolver.resolved()
    ask = make_ask(found.spec, settings.model.weights, settings.cache.kv_format)
    sizes = Sizes(ROWS, SEQUENCES, CONTEXT, found.kv_plan.kv_bytes)
    setup = replica_setup(found.spec, ask.weights, ask.kv_kind, calibration, found.machine.available_bytes, sizes)
    outcome = Fleet(FleetPlan(setup), LeastLoaded()).run(load)
    simulated = figures([each.observation() for each in outcome.seen])
    if simulated.ttft is None or simulated.itl is None:
        raise SystemExit("the workload has no answers of two tokens")
    rounds = [real_run(asked.model, options, load, number) for number in range(asked.rounds)]
    result = compare(rounds, simulated.ttft, simulated.itl)
    cost = step_cost(work_of(found.spec, ask.weights, ask.kv_kind), calibration)
    steps = step_errors([record for each in rounds for record in each.records], cost)
    met = all(abs(each["error"]) <= TARGET for each in result.values())
    if asked.json:
        print(json.dumps({"figures": result, "steps_error": steps.total, "met": met, **vars(asked)}, indent=1))
        return 0 if met else 1
    print(f"{asked.workload} at {asked.rate:g}/s, {len(load)} requests, {asked.model} in {ask.weights}")
    print(f"{'':<10}{'real ms':>10}{'simulated':>11}{'error':>9}{'spread of real rounds':>24}")
    for name, each in result.items():
        real_ms, simulated_ms = 1e3 * each["real_s"], 1e3 * each["simulated_s"]
        print(f"{name:<10}{real_ms:>10.2f}{simulated_ms:>11.2f}{each['error']:>+9.1%}{each['spread']:>24.2f}")
    print(f"all steps, predicted over measured: {steps.total:+.1%}")
    for name, errors in (("decode", steps.decode), ("mixed", steps.mixed)):
        if errors is not None:
            print(f"  {name} steps: p50 {errors.p50:+.1%}, p90 {errors.p90:+.1%}, of {errors.count:,}")
    print(f"the target of {TARGET:.0%} is {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(run())
