"""JSON schemas of the engine's own data: facts, frames of the live view, traces, explanations."""

from __future__ import annotations

from typing import Any

from twostroke.server.api.json_schema import COUNT, OBJECT, TEXT, list_of, maybe, object_of

_SECONDS: dict[str, Any] = {"type": "number", "minimum": 0}
_TIME: dict[str, Any] = {"type": "number", "description": "Seconds on the engine's clock."}
_MAYBE_SECONDS = maybe(_SECONDS)
_PLACE: dict[str, Any] = {**COUNT, "description": "A place in `names`."}
_ENDS = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}


def _row(*columns: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a list with these values."""
    return {"type": "array", "prefixItems": list(columns), "minItems": len(columns), "maxItems": len(columns)}


ABOUT: dict[str, Any] = {
    **object_of(frame_s=_SECONDS, now_s=_TIME),
    "description": "Facts that do not change while the engine runs, and its clock.",
}
ABOUT["properties"] |= {
    "version": TEXT,
    "model": TEXT,
    "page_tokens": COUNT,
    "settings": OBJECT,
    "chats": {"type": "boolean", "description": "Does the server keep the page's chats?"},
    "pdf": {"type": "boolean", "description": "Can it read PDF files?"},
    "objectives": object_of(ttft_s=_MAYBE_SECONDS, itl_s=_MAYBE_SECONDS),
    "limits": object_of(
        measured={"type": "boolean"}, source=TEXT, read_bytes_per_s=_SECONDS, flops_per_s=_SECONDS, unit=TEXT
    ),
}

_RUN = object_of(
    step=COUNT,
    number=COUNT,
    rows=list_of(_row(_PLACE, COUNT, COUNT, COUNT, COUNT)),
    preempted=list_of(_PLACE),
    prefill_share={"type": "number", "minimum": 0, "maximum": 1},
    begin_s=_TIME,
    times=list_of(_row(*[{"type": "integer"}] * 5)),
)
_RUN["properties"] |= {"predicted_s": _ENDS, "flops": _ENDS, "bytes": _ENDS}
_REQUEST = _row(
    _PLACE,
    {"enum": ["queued", "filling", "decoding", "back"]},
    _TIME,
    maybe(_TIME),
    maybe(_TIME),
    COUNT,
    COUNT,
    COUNT,
)
_LATENCY = object_of(count=COUNT, objective_s=_MAYBE_SECONDS)
_GUESSES = object_of(guessed=COUNT, accepted=COUNT, won_s=_SECONDS, lost_s=_SECONDS)
_REPLICA = object_of(
    name=TEXT,
    address=TEXT,
    state=TEXT,
    role=TEXT,
    running=COUNT,
    waiting=COUNT,
    pages_used=COUNT,
    pages=COUNT,
    prompt_tokens=COUNT,
    step_s=_SECONDS,
    output_tokens=COUNT,
)
FRAME: dict[str, Any] = {
    **object_of(
        frame={"type": "integer", "minimum": 1},
        now_s=_TIME,
        last_step=COUNT,
        skipped_steps=COUNT,
        runs=list_of(_RUN),
        requests=list_of(_REQUEST),
        more_requests=COUNT,
        ended=list_of(
            object_of(
                request=TEXT,
                arrival_s=_TIME,
                parts_s=OBJECT,
                reason=TEXT,
                ttft_s=_MAYBE_SECONDS,
                guesses=maybe(_GUESSES),
            )
        ),
        gauges={"type": "object", "additionalProperties": {"type": "number"}},
        pages=list_of(_row({"enum": [0, 1, 2, 3, 4]}, COUNT)),
        latency=object_of(ttft=_LATENCY, itl=_LATENCY),
        names=list_of(TEXT),
        replicas=list_of(_REPLICA),
    ),
    "description": "What happened since the last frame; one a server-sent event.",
}

_TRACE_EVENT = object_of(ph={"enum": ["M", "X", "C", "i"]}, name=TEXT, pid=COUNT, args=OBJECT)
_TRACE_EVENT["properties"] |= {"tid": COUNT, "ts": {"type": "number"}, "dur": {"type": "number", "minimum": 0}}
TRACE: dict[str, Any] = {
    **object_of(traceEvents=list_of(_TRACE_EVENT), displayTimeUnit={"const": "ms"}),
    "description": "A Chrome trace; Perfetto opens it.",
}

_VERDICT = {"enum": ["slow to start", "slow to stream"]}
EXPLAINED = object_of(
    request_id=TEXT,
    verdict=_VERDICT,
    summary=TEXT,
    e2e_s=_SECONDS,
    ttft_s=_MAYBE_SECONDS,
    mean_itl_s=_MAYBE_SECONDS,
    num_prompt_tokens=COUNT,
    num_cached_tokens=COUNT,
    num_output_tokens=COUNT,
    parts_s={"type": "object", "additionalProperties": {"type": "number"}},
    causes=list_of(object_of(kind=TEXT, side=_VERDICT, seconds={"type": "number"}, text=TEXT, who=list_of(TEXT))),
    advice=list_of(object_of(text=TEXT, saves_s={"type": "number"})),
    source=TEXT,
    num_disk_tokens=COUNT,
    text={**TEXT, "description": "All of it in words."},
)
ENGINE_ANSWERS: dict[str, Any] = {
    "EngineAbout": ABOUT,
    "EngineFrame": FRAME,
    "EngineTrace": TRACE,
    "Explanation": {
        **object_of(id=TEXT, object={"const": "request.explanation"}, completions=list_of(EXPLAINED)),
        "description": "Where a request's time went, of each of its completions.",
    },
}


def number_query(name: str, words: str) -> dict[str, Any]:
    """Returns a query parameter in seconds of the engine's clock."""
    return {"name": name, "in": "query", "required": False, "description": words, "schema": {"type": "number"}}


TRACE_QUERY = [
    number_query("begin_s", "The first step's begin at the earliest; 0 where it is left out."),
    number_query("end_s", "The last step's begin at the latest; no end where it is left out."),
]


def frames_query(most: int) -> list[dict[str, Any]]:
    """Returns the query parameter for the number of frames that a viewer wants."""
    schema = {"type": "integer", "minimum": 1, "maximum": most}
    words = "End after this many frames; without it the stream ends with the server, or when the viewer goes."
    return [{"name": "frames", "in": "query", "required": False, "description": words, "schema": schema}]
