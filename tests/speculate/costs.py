"""A cost model whose steps take the times that a test sets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twostroke.cost.shape import Bound, Part, PartPrediction, StepPrediction
from twostroke.cost.work import Work


@dataclass
class RowCost:
    """Satisfies StepCost: seconds by rows of the step. calls: the number of its calls."""

    seconds: Callable[[int], float]
    calls: int = 0

    def predict(self, segments: Sequence[Part]) -> StepPrediction:
        self.calls += 1
        rows = sum(each.num_tokens for each in segments)
        return StepPrediction((PartPrediction("weights", self.seconds(rows), Work(), Bound.MEMORY),))


def memory_bound(rows: int) -> float:
    """Reading the weights takes 10 ms; from 8 rows on, arithmetic takes longer."""
    return max(10e-3 + 0.1e-3 * rows, 1.35e-3 * rows)


def arithmetic_bound(rows: int) -> float:
    """Each row takes a millisecond."""
    return 1e-3 * rows
