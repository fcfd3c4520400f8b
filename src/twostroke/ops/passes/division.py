"""Decides which part of a model each process has, and what the processes exchange. The processes are ranks, which
divide the outputs of products, or stages, which divide layers.

The leader schedules and samples. It is rank 0, or the last stage, because that has the head.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from twostroke.cost.exchange import ExchangeWork
from twostroke.ops.passes.cut import cut_model
from twostroke.ops.passes.shard import shard_model
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice
from twostroke.ops.program.values import Size
from twostroke.ops.ranks.gather import ELEMENT_BYTES, Gather
from twostroke.ops.ranks.hand_over import HandOver
from twostroke.ops.ranks.receive import Receive
from twostroke.types.errors import ConfigError

TENSOR, PIPELINE = "tensor", "pipeline"
MOST_RANKS = 64


@dataclass(frozen=True, slots=True)
class Division:
    """How a model is divided among processes. way: TENSOR for ranks or PIPELINE for stages. count: the number of
    processes."""

    way: str
    count: int

    @classmethod
    def asked(cls, tensor: int, stages: int) -> Division | None:
        """Returns the division into `tensor` ranks or `stages` stages; None for one process. Raises ConfigError for
        both at once, and for too many."""
        if tensor > 1 and stages > 1:
            raise ConfigError(
                "--tensor-parallel and --pipeline-parallel cannot be together yet.",
                why="The ranks of one stage cannot exchange values.",
                fix="Choose one of them.",
            )
        count = max(tensor, stages)
        if count > MOST_RANKS:
            raise ConfigError(f"{count} ranks are too many.", fix=f"Use at most {MOST_RANKS}.")
        return None if count == 1 else cls(TENSOR if tensor > 1 else PIPELINE, count)

    @property
    def leader(self) -> int:
        """The index of the process that schedules and samples."""
        return self.count - 1 if self.way == PIPELINE else 0

    @property
    def members(self) -> list[int]:
        """The indices of all processes but the leader."""
        return [rank for rank in range(self.count) if rank != self.leader]

    @property
    def plans(self) -> int:
        """How many plans (of steps) are computed at the same time. Each stage of a pipeline has a plan of its own;
        ranks compute one plan together."""
        return self.count if self.way == PIPELINE else 1

    @property
    def noun(self) -> str:
        """The name of one of the processes: "stage" or "rank"."""
        return "stage" if self.way == PIPELINE else "rank"

    @property
    def option(self) -> str:
        """The command line option with which a user divides a model in this way, such as "--tensor-parallel 4"."""
        return f"--{self.way}-parallel {self.count}"

    def part(self, spec: Model, rank: int) -> Model:
        """Returns a rank's part of the model, which is made only once. Raises ConfigError where the model cannot be
        divided among `count` processes."""
        return _part(self, spec, rank)

    def own(self, spec: Model) -> Model:
        """Returns the leader's part of the model."""
        return self.part(spec, self.leader)

    def parts(self, spec: Model) -> list[Model]:
        """Returns the parts whose memory is planned: each stage's part, or for ranks the leader's part alone, because
        all ranks need the same memory."""
        return [self.part(spec, rank) for rank in range(self.count)] if self.way == PIPELINE else [self.own(spec)]

    def counted(self, spec: Model) -> Model:
        """Returns the model whose cost is the time of a step. For ranks, which work at the same time, it is the
        leader's part. For stages, which work in turn, it is the whole model."""
        return self.own(spec) if self.way == TENSOR else spec

    def exchange_of(self, part: Model, format_for: FormatChoice) -> ExchangeWork:
        """Returns what the process with this part of the model sends in a step, to all others together. format_for:
        returns the format of each matrix."""
        found = ExchangeWork()
        for call in part.program.calls:
            if isinstance(call, Gather):
                found += _meeting(call.part.rows, call.sent_row_bytes(format_for) * (self.count - 1))
            elif isinstance(call, HandOver):
                found += _meeting(call.x.rows, ELEMENT_BYTES * call.x.width)
        return found

    def exchange(self, spec: Model, format_for: FormatChoice) -> ExchangeWork:
        """Returns the data that must be sent before a step ends. Ranks send at the same time, so this is what the
        leader sends. Stages send one after the other, so it is the sum over all stages."""
        return sum((self.exchange_of(part, format_for) for part in self.parts(spec)), ExchangeWork())

    def exchange_width(self, spec: Model) -> int:
        """Returns the number of elements in a row of the widest value that ranks exchange."""
        calls = [call for part in self.parts(spec) for call in part.program.calls]
        return max(call.out.width for call in calls if isinstance(call, (Gather, Receive)))


@lru_cache(maxsize=MOST_RANKS)
def _part(division: Division, spec: Model, rank: int) -> Model:
    """Returns a rank's part of the model. The result is kept: memory, costs, the exchange and the weights all need the
    parts, and dividing a deep model takes long."""
    return (shard_model if division.way == TENSOR else cut_model)(spec, rank, division.count)


def _meeting(rows: Size, row_bytes: int) -> ExchangeWork:
    if rows is Size.LOGIT_ROWS:
        return ExchangeWork(logit_meetings=1, logit_row_bytes=row_bytes)
    return ExchangeWork(meetings=1, row_bytes=row_bytes)
