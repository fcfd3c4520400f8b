"""The effect of guesses on a completion that has ended, as a frame of the page shows it."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.cost.history.ledger import Ledger
from twostroke.cost.shape import Bound, Part, PartPrediction, StepPrediction
from twostroke.cost.work import Work
from twostroke.server.live.frame import Frames
from twostroke.server.live.view import EngineView
from twostroke.types.event import FinishedEvent
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import SampledToken, StepResult
from twostroke.types.sampling.sampling_params import SamplingParams


class RowCost:
    """A cost of 10 ms for a step and 1 ms for each row."""

    def predict(self, segments: Sequence[Part]) -> StepPrediction:
        seconds = 0.010 + 0.001 * sum(segment.num_tokens for segment in segments)
        return StepPrediction((PartPrediction("layers", seconds, Work(), Bound.MEMORY),))


def run(ledger: Ledger, draft: tuple[int, ...], taken: int) -> None:
    """A completion of one prompt step and one step with this draft, of which `taken` tokens were right."""
    request = Request("r/0", "r", (1, 2, 3), SamplingParams(), 0, 9, frozenset(), 0.0)
    ledger.arrive(request)
    prompt = PlannedSequence(request, 0, 3, [1, 2, 3], ([0],), True, Role.PREFILL)
    ledger.step(Plan(1, (prompt,)), StepResult({"r/0": (SampledToken(4),)}, model_s=0.01), 0.0, 0.01)
    ledger.close_step(0.01)
    decode = PlannedSequence(request, 3, 1 + len(draft), [1, 2, 3, 4], ([0],), True, Role.DECODE, draft_token_ids=draft)
    tokens = tuple(SampledToken(token_id) for token_id in (*draft[:taken], 9))
    result = StepResult({"r/0": tokens}, model_s=0.01)
    ledger.step(Plan(2, (decode,), num_draft_tokens=len(draft)), result, 0.01, 0.02)
    ledger.close_step(0.02)
    ledger.finish(FinishedEvent("r/0", FinishReason.LENGTH, 0.02, 3, 1 + len(tokens), 0, 0, 0.0))


def test_a_frame_holds_guessed_and_accepted_tokens_and_what_they_won_and_lost() -> None:
    ledger = Ledger(RowCost())
    frames = Frames(EngineView(ledger))
    run(ledger, (5, 6, 7), 2)
    (ended,) = frames.next(None, {})["ended"]
    # Two accepted tokens saved two steps of one row; three more rows took 3 ms.
    assert ended["guesses"] == {"guessed": 3, "accepted": 2, "won_s": 0.022, "lost_s": 0.003}


def test_a_completion_without_guesses_says_nothing_of_them() -> None:
    ledger = Ledger(RowCost())
    frames = Frames(EngineView(ledger))
    run(ledger, (), 0)
    (ended,) = frames.next(None, {})["ended"]
    assert ended["guesses"] is None
