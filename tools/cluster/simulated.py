"""Compares the simulator with three processes with a front."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cluster.case import Note, Outcome
from tools.cluster.processes import bench_serve, random_checkpoint, serving

from twostroke.assembly.settings.env import read_machine
from twostroke.lab.planner.ask import make_ask
from twostroke.lab.planner.doctor.machine import ThisMachine
from twostroke.lab.sim.fleet import Fleet, FleetPlan
from twostroke.lab.sim.routers import named_router
from twostroke.lab.sim.setup import Sizes, replica_setup
from twostroke.lab.workload.figures import Figures, figures
from twostroke.lab.workload.synthetic import NAMED, Load
from twostroke.runner.folder import read_folder
from twostroke.types.errors import TwostrokeError

MEDIAN_ERROR, TAIL_ERROR = 0.10, 0.20
POOL_BYTES = 512 << 20
WORKLOAD, WEIGHTS, KV = "steady-chat", "int8", "int8"


@dataclass(frozen=True)
class SimulatorBesideProcesses:
    """The simulator knows of this machine what the doctor measured with one thread. Where there are fewer than three
    cores, the processes share them; the simulator does not know that, so the rate of requests is low."""

    shape: str = "qwen2.5-0.5b"
    replicas: int = 3
    rate_per_s: float = 0.4
    requests: int = 40
    tokens_scale: float = 0.5
    seed: int = 1
    name: str = "simulator"
    goal: str = f"TTFT and ITL: p50 off by <= {MEDIAN_ERROR:.0%}, p99 by <= {TAIL_ERROR:.0%}"
    minutes: float = 2.5

    def run(self, note: Note) -> Outcome:
        """See Case."""
        folder = random_checkpoint(self.shape)
        note("the simulator")
        here = ThisMachine.read(1)
        simulated = self._simulated(folder, here)
        note(f"{self.replicas} processes")
        words = ("--weights", WEIGHTS, "--kv-format", KV, "--kv-memory", str(POOL_BYTES), "--context", "2k")
        with serving(folder, *words, replicas=self.replicas) as server:
            load: tuple[str, ...] = (
                "--workload",
                WORKLOAD,
                "--rate",
                f"{self.rate_per_s:g}",
                "--requests",
                str(self.requests),
            )
            load += ("--tokens-scale", f"{self.tokens_scale:g}", "--seed", str(self.seed))
            real: dict[str, Any] = bench_serve(server, *load)["figures"]
        found: dict[str, float] = {}
        reached = not real["errors"]
        for name, summary in (("ttft", simulated.ttft), ("itl", simulated.itl)):
            for place, most in (("p50", MEDIAN_ERROR), ("p99", TAIL_ERROR)):
                said, was = getattr(summary, place), real[name][place]
                found |= {f"{name}_{place}_simulated_ms": 1e3 * said, f"{name}_{place}_real_ms": 1e3 * was}
                found[f"{name}_{place}_error"] = said / was - 1
                reached = reached and abs(said / was - 1) <= most
        return Outcome(found, reached)

    def _simulated(self, folder: str, here: ThisMachine) -> Figures:
        spec = read_folder(Path(folder))
        ask = make_ask(spec, WEIGHTS, KV)
        try:
            calibration = here.kept_or_measured(lambda *_: None)
        except TwostrokeError as error:
            raise SystemExit(str(error)) from error
        sizes = Sizes(context_tokens=2048, kv_bytes=POOL_BYTES)
        memory = read_machine().available_bytes
        setup = replica_setup(spec, ask.weights, ask.kv_kind, calibration, memory, sizes)
        load = NAMED[WORKLOAD](Load(self.rate_per_s, self.requests, self.seed, self.tokens_scale))
        outcome = Fleet(FleetPlan(setup, self.replicas), named_router("predicted")).run(load)
        return figures([each.observation() for each in outcome.seen])
