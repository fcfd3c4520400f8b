"""Records as lines of JSON: the form of `--trace FILE`, which converters and the simulator read.

    line 1      {"twostroke_steps": 3, "sequence_columns": [...], "part_columns": [...]}
    then        {"step": 7, "begin_s": ..., "sequences": [["req-1/0", 512, 1, true, 3, 0, 0, "decode", 0, 0], ...], ...}
    and         {"request": "req-1/0", "arrival_s": ..., ...}      when a completion has ended

Readers must ignore keys that they do not know; a change that is more than a new key changes the version. Version 1 had
no column `scored`: in its files no row was scored. Versions 1 and 2 had no columns `role`, `drafts` and `accepted`:
the engines that wrote them decoded one row at a time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from twostroke.cost.history.record import RequestRecord, SequenceRecord, StepRecord
from twostroke.cost.shape import Bound, PartPrediction, Segment, StepPrediction
from twostroke.cost.work import Work
from twostroke.types.errors import ConfigError
from twostroke.types.plan import Role

VERSION = 3
HEADER_KEY = "twostroke_steps"
COLUMNS_OF_1 = ("request_id", "start", "num_tokens", "samples", "num_output_tokens", "num_recomputed_tokens")
COLUMNS_OF_2 = (*COLUMNS_OF_1, "scored")
SEQUENCE_COLUMNS = (*COLUMNS_OF_2, "role", "drafts", "accepted")
SELDOM = {"adapters": -1, "later": 0}
"""Keys of a step whose lists have a number for each sequence, and the usual number. A list is written only when one of
its numbers is not the usual one."""
COLUMNS_BY_VERSION = {1: COLUMNS_OF_1, 2: COLUMNS_OF_2, VERSION: SEQUENCE_COLUMNS}
PART_COLUMNS = ("name", "seconds", "flops", "weight_bytes", "kv_bytes", "activation_bytes", "bound")

Record = StepRecord | RequestRecord


def header_json(cost_source: str = "") -> dict[str, Any]:
    """The first line's value. cost_source: where `predicted` comes from, in words."""
    return {
        HEADER_KEY: VERSION,
        "predicted_by": cost_source,
        "sequence_columns": list(SEQUENCE_COLUMNS),
        "part_columns": list(PART_COLUMNS),
    }


def to_json(record: StepRecord) -> dict[str, Any]:
    """Returns a step as plain JSON values. The key `adapters` is there only when a sequence has an adapter, and the
    key `later` only when a row sees later positions."""
    segments = [each.segment for each in record.sequences]
    seldom = {"adapters": [each.adapter for each in segments], "later": [each.later for each in segments]}
    return {key: found for key, found in seldom.items() if any(each != SELDOM[key] for each in found)} | {
        "step": record.step_id,
        "begin_s": record.begin_s,
        "end_s": record.end_s,
        "model_s": record.model_s,
        "sampling_s": record.sampling_s,
        "sequences": [
            [
                each.request_id,
                each.segment.start,
                each.segment.num_tokens,
                each.segment.samples,
                each.num_output_tokens,
                each.num_recomputed_tokens,
                each.segment.scored,
                each.segment.role.value,
                each.segment.drafts,
                each.num_accepted,
            ]
            for each in record.sequences
        ],
        "preempted": list(record.preempted),
        "waiting": record.waiting,
        "predicted": None if record.predicted is None else [_part_json(part) for part in record.predicted.parts],
        "delayed_s": record.delayed_s,
    }


def from_json(value: Mapping[str, Any], version: int = VERSION) -> StepRecord:
    """The inverse of to_json, and of what earlier versions wrote. Raises ValueError that names the field."""
    predicted = value.get("predicted")
    parts = None if predicted is None else tuple(_part(row) for row in _rows(predicted, "predicted"))
    return StepRecord(
        step_id=_integer(value, "step"),
        begin_s=_number(value, "begin_s"),
        end_s=_number(value, "end_s"),
        model_s=_number(value, "model_s"),
        sampling_s=_number(value, "sampling_s"),
        sequences=_sequences(value, COLUMNS_BY_VERSION[version]),
        preempted=tuple(str(name) for name in value.get("preempted", ())),
        waiting=_integer(value, "waiting") if "waiting" in value else 0,
        predicted=None if parts is None else StepPrediction(parts),
        delayed_s=_number(value, "delayed_s") if "delayed_s" in value else 0.0,
    )


def request_to_json(record: RequestRecord) -> dict[str, Any]:
    """A completion that has ended as plain JSON values."""
    return {
        "request": record.request_id,
        "arrival_s": record.arrival_s,
        "finished_s": record.finished_s,
        "prompt_tokens": record.num_prompt_tokens,
        "output_tokens": record.num_output_tokens,
        "cached_tokens": record.num_cached_tokens,
        "priority": record.priority,
        "parts_s": dict(record.parts_s),
    }


def request_from_json(value: Mapping[str, Any]) -> RequestRecord:
    """The inverse of request_to_json. Raises ValueError that names the field."""
    parts = value.get("parts_s", {})
    if not isinstance(parts, Mapping):
        raise ValueError("parts_s is not an object")
    return RequestRecord(
        request_id=str(_field(value, "request")),
        arrival_s=_number(value, "arrival_s"),
        finished_s=_number(value, "finished_s"),
        num_prompt_tokens=_integer(value, "prompt_tokens"),
        num_output_tokens=_integer(value, "output_tokens"),
        num_cached_tokens=_integer(value, "cached_tokens") if "cached_tokens" in value else 0,
        priority=_integer(value, "priority") if "priority" in value else 0,
        parts_s={str(name): _number(parts, name) for name in parts},
    )


def record_line(record: Record) -> str:
    """Returns a record as one line of JSON, with the line break."""
    value = to_json(record) if isinstance(record, StepRecord) else request_to_json(record)
    return json.dumps(value, separators=(",", ":")) + "\n"


def header_line(cost_source: str = "") -> str:
    """Returns the first line of a record file, with the line break."""
    return json.dumps(header_json(cost_source), separators=(",", ":")) + "\n"


def read_lines(lines: Iterable[str], name: str) -> Iterator[Record]:
    """The records of a trace; `name` is for messages. Raises ConfigError that names the line and the field."""
    number, version = 0, VERSION
    for number, line in enumerate(lines, start=1):
        if number == 1:
            version = _version_of(line, name)
        elif line.strip():
            yield _record(line, name, number, version)
    if number == 0:
        raise ConfigError(f"{name} is empty.", fix="Give a file that `--trace` wrote.")


def _version_of(line: str, name: str) -> int:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    version = value.get(HEADER_KEY) if isinstance(value, dict) else None
    if version is None:
        raise ConfigError(
            f"{name}, line 1: this is no file of step records.",
            why=f"The first line has no {HEADER_KEY!r}.",
            fix="Give a file that `--trace` wrote.",
        )
    if type(version) is not int or version not in COLUMNS_BY_VERSION:
        known = ", ".join(map(str, COLUMNS_BY_VERSION))
        raise ConfigError(f"{name}, line 1: step records of version {version!r}; this program reads {known}.")
    return version


def _record(line: str, name: str, number: int, version: int) -> Record:
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
        if "step" in value:
            return from_json(value, version)
        if "request" in value:
            return request_from_json(value)
        raise ValueError("it has neither 'step' nor 'request'")
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{name}, line {number}: not a record.", why=f"{error}.", fix="Remove the line, or record anew."
        ) from None


def _part_json(part: PartPrediction) -> list[Any]:
    work = part.work
    moved = [work.flops, work.weight_bytes, work.kv_bytes, work.activation_bytes]
    return [part.name, part.seconds, *moved, part.bound.value]


def _part(row: list[Any]) -> PartPrediction:
    value = _named(row, PART_COLUMNS, "predicted")
    work = Work(*(_integer(value, key) for key in PART_COLUMNS[2:6]))
    return PartPrediction(str(value["name"]), _number(value, "seconds"), work, Bound(value["bound"]))


def _sequence(row: list[Any], columns: tuple[str, ...], adapter: int, later: int) -> SequenceRecord:
    value = _named(row, columns, "sequences")
    start, num_tokens = _integer(value, "start"), _integer(value, "num_tokens")
    made, again = _integer(value, "num_output_tokens"), _integer(value, "num_recomputed_tokens")
    scored = _integer(value, "scored") if "scored" in columns else 0
    old_role = Role.DECODE if num_tokens == 1 and made and not again else Role.PREFILL
    role = Role(value["role"]) if "role" in columns else old_role
    drafts, accepted = (_integer(value, key) if key in columns else 0 for key in ("drafts", "accepted"))
    segment = Segment(start, num_tokens, bool(value["samples"]), role, scored, drafts, adapter, later)
    return SequenceRecord(str(value["request_id"]), segment, made, again, accepted)


def _sequences(value: Mapping[str, Any], columns: tuple[str, ...]) -> tuple[SequenceRecord, ...]:
    rows = _rows(_field(value, "sequences"), "sequences")
    seldom = zip(*(_seldom(value, key, len(rows)) for key in SELDOM), strict=True)
    return tuple(_sequence(row, columns, *each) for row, each in zip(rows, seldom, strict=True))


def _seldom(value: Mapping[str, Any], key: str, count: int) -> list[int]:
    """Returns the list under `key`, one of SELDOM ("adapters", "later"), with one number for each of the step's `count`
    sequences. Where the record has no such list, each number is the usual one of SELDOM."""
    found = value.get(key, [SELDOM[key]] * count)
    if not isinstance(found, list) or len(found) != count or not all(type(each) is int for each in found):
        raise ValueError(f"{key} is not a list of {count} numbers")
    return found


def _rows(value: Any, name: str) -> list[list[Any]]:
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise ValueError(f"{name} is not a list of lists")
    return value


def _named(row: list[Any], columns: tuple[str, ...], name: str) -> dict[str, Any]:
    if len(row) < len(columns):
        raise ValueError(f"an entry of {name} has {len(row)} values, not {len(columns)}")
    return dict(zip(columns, row, strict=False))


def _field(value: Mapping[str, Any], name: str) -> Any:
    if name not in value:
        raise ValueError(f"the field {name!r} is missing")
    return value[name]


def _number(value: Mapping[str, Any], name: str) -> float:
    found = _field(value, name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise ValueError(f"the field {name!r} is not a number")
    return float(found)


def _integer(value: Mapping[str, Any], name: str) -> int:
    found = _field(value, name)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ValueError(f"the field {name!r} is not a whole number from 0")
    return found
