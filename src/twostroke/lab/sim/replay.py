"""Makes a workload of the step and request records of a server or of a simulation, and compares the recorded steps with
a cost model.

Token ids are not recorded. A request for the log probabilities of its prompt (`scored`) becomes such a request again,
so all of its prompt is computed, whatever is cached. A prompt of which a prefix was found in the cache gets such a
prefix again: the first blocks of the latest earlier prompt that is long enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from twostroke.cost.history.record import RequestRecord, StepRecord
from twostroke.cost.history.record_json import Record
from twostroke.cost.shape import StepCost
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.summary import Summary, summary
from twostroke.types.errors import ConfigError
from twostroke.types.plan import Role
from twostroke.types.spec.formats import PAGE_TOKENS


def workload_of(records: Iterable[Record], source: str) -> list[WorkloadRequest]:
    """Returns a request for each answered request of the records. Where there is none, it returns those that have
    output tokens in step records. The first request arrives at 0.

    A request is answered when it got output tokens, or the scores of its whole prompt. Raises ConfigError where there
    are no requests.
    """
    found = list(records)
    steps = [record for record in found if isinstance(record, StepRecord)]
    scored = _scored_rows(steps)
    ended = [record for record in found if isinstance(record, RequestRecord) and _answered(record, scored)]
    ended = ended or _unfinished(steps)
    if not ended:
        raise ConfigError(f"{source}: no request was answered in these records.", fix="Record while requests run.")
    ended.sort(key=lambda record: record.arrival_s)
    begin_s = ended[0].arrival_s
    blocks = _blocks(ended)
    return [
        WorkloadRequest(
            arrival_s=record.arrival_s - begin_s,
            prompt_tokens=record.num_prompt_tokens,
            output_tokens=record.num_output_tokens,
            block_ids=ids,
            block_tokens=PAGE_TOKENS,
            priority=record.priority,
            scored=scored[record.request_id] > 0,
        )
        for record, ids in zip(ended, blocks, strict=True)
    ]


def _scored_rows(steps: Iterable[StepRecord]) -> Counter[str]:
    """Returns how many rows of each request were scored, by request id; 0 for a request without scores."""
    found: Counter[str] = Counter()
    for step in steps:
        for each in step.sequences:
            if each.segment.scored:
                found[each.request_id] += each.segment.scored
    return found


def _answered(record: RequestRecord, scored: Mapping[str, int]) -> bool:
    """Returns whether the request was answered. Either tokens were made; or none was asked for, and every token of the
    prompt after the first has its score."""
    return record.num_output_tokens > 0 or 0 < record.num_prompt_tokens - 1 == scored[record.request_id]


def _unfinished(steps: Sequence[StepRecord]) -> list[RequestRecord]:
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    prompts: dict[str, int] = {}
    outputs: dict[str, int] = {}
    for step in steps:
        for each in step.sequences:
            name, segment = each.request_id, each.segment
            first.setdefault(name, step.begin_s)
            last[name] = step.end_s
            if each.num_output_tokens == 0:
                prompts[name] = segment.start + segment.num_tokens
            outputs[name] = max(outputs.get(name, 0), each.num_output_tokens + segment.samples + each.num_accepted)
    return [
        RequestRecord(name, first[name], last[name], prompts[name], outputs[name]) for name in prompts if outputs[name]
    ]


def _blocks(ended: Sequence[RequestRecord]) -> list[tuple[int, ...]]:
    """Returns the block ids of each prompt, one for each full page."""
    found: list[tuple[int, ...]] = []
    fresh = 0
    for record in ended:
        shared = record.num_cached_tokens // PAGE_TOKENS
        earlier = (ids for ids in reversed(found) if shared and len(ids) >= shared)
        ids = next(earlier, ())[:shared]
        own = record.num_prompt_tokens // PAGE_TOKENS - len(ids)
        found.append((*ids, *range(fresh, fresh + own)))
        fresh += own
    return found


@dataclass(frozen=True, slots=True)
class StepErrors:
    """Errors of predictions. decode, mixed: the distribution of predicted / measured seconds - 1, for steps without
    prefill and for other steps; None without such steps. measured_s, predicted_s: the seconds of all steps together."""

    decode: Summary | None
    mixed: Summary | None
    measured_s: float
    predicted_s: float

    @property
    def total(self) -> float:
        """The predicted seconds of all steps together, divided by the measured seconds, minus 1."""
        return self.predicted_s / self.measured_s - 1 if self.measured_s else 0.0


def step_errors(records: Iterable[Record], cost: StepCost) -> StepErrors:
    """Returns how well a cost model predicts the steps of a real run. decode: steps without prefill."""
    decode: list[float] = []
    mixed: list[float] = []
    measured_s = predicted_s = 0.0
    for record in records:
        if not isinstance(record, StepRecord) or record.seconds <= 0:
            continue
        seconds = cost.predict([each.segment for each in record.sequences]).seconds
        measured_s += record.seconds
        predicted_s += seconds
        pure = all(each.segment.role is Role.DECODE for each in record.sequences)
        (decode if pure else mixed).append(seconds / record.seconds - 1)
    return StepErrors(summary(decode), summary(mixed), measured_s, predicted_s)
