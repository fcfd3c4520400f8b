"""Mooncake's traces: one JSON object a line, {"timestamp": ms, "input_length", "output_length", "hash_ids": [...]}.

hash_ids are identities of blocks of 512 prompt tokens: equal ids at the beginning mean an equal prefix.
FAST'25 release of Mooncake (kvcache-ai/Mooncake).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.synthetic import in_order
from twostroke.lab.workload.trace_error import TraceError, broken, whole_number

BLOCK_TOKENS = 512
EXPECTED = 'A line looks like {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}.'


def parse_mooncake(lines: Iterable[str], source: str = "trace") -> list[WorkloadRequest]:
    """Returns the requests in order of arrival. Times count from the first arrival, and lengths of 0 become 1.

    Raises TraceError that names the line.
    """
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_request(json.loads(line)))
        except RecursionError:
            raise broken(source, number, "not JSON that can be read: nested too deeply", EXPECTED) from None
        except json.JSONDecodeError as error:
            raise broken(source, number, f"not JSON: {error.msg} at column {error.colno}", EXPECTED) from None
        except (ValueError, OverflowError) as error:
            raise broken(source, number, str(error), EXPECTED) from None
    if not found:
        raise TraceError(f"{source}: there is no request in it.", fix=EXPECTED)
    return from_zero(found)


def from_zero(requests: list[WorkloadRequest]) -> list[WorkloadRequest]:
    """Returns the requests sorted by arrival, the first at 0."""
    ordered = in_order(requests)
    start_s = ordered[0].arrival_s
    return [replace(request, arrival_s=request.arrival_s - start_s) for request in ordered]


def _request(value: Any) -> WorkloadRequest:
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__}, not an object")
    for name in ("timestamp", "input_length", "output_length"):
        if name not in value:
            raise ValueError(f"the field {name} is missing")
    time_ms = value["timestamp"]
    if isinstance(time_ms, bool) or not isinstance(time_ms, int | float) or not math.isfinite(time_ms):
        raise ValueError("timestamp is not a number of milliseconds")
    prompt = max(1, whole_number(value["input_length"], "input_length"))
    output = max(1, whole_number(value["output_length"], "output_length"))
    ids = value.get("hash_ids", [])
    if not isinstance(ids, list):
        raise ValueError("hash_ids is not a list")
    blocks = -(-prompt // BLOCK_TOKENS)
    marks = tuple(whole_number(each, "an entry of hash_ids") for each in ids)[:blocks]
    return WorkloadRequest(time_ms / 1e3, prompt, output, marks, BLOCK_TOKENS)
