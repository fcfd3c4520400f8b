"""Records of simulated steps and requests, kept by the production ledger: the same lines as a real server's --trace."""

from __future__ import annotations

from twostroke.cost.history.ledger import Ledger
from twostroke.cost.history.record_json import Record
from twostroke.engine.core import Step
from twostroke.lab.sim.replica import Replica
from twostroke.types.event import FinishedEvent
from twostroke.types.plan import Plan
from twostroke.types.request import Request
from twostroke.types.result import StepResult


class StepRecorder:
    """Satisfies StepWatch. records: the records of steps by the replica's name, in order of time."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = {}
        self._ledgers: dict[str, Ledger] = {}

    def on_arrival(self, replica: Replica, request: Request) -> None:
        self._ledger(replica).arrive(request)

    def on_computed(self, replica: Replica, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        self._ledger(replica).step(plan, result, begin_s, commit_s)

    def on_step(self, replica: Replica, step: Step, end_s: float) -> None:
        ledger = self._ledger(replica)
        for event in step.events:
            if isinstance(event, FinishedEvent):
                ledger.finish(event)
        ledger.close_step(end_s)

    def _ledger(self, replica: Replica) -> Ledger:
        found = self._ledgers.get(replica.name)
        if found is None:
            records = self.records[replica.name] = []
            found = self._ledgers[replica.name] = Ledger(replica.setup.cost, records.append)
        return found
