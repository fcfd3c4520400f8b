"""OpenTelemetry, if it is installed: a span for each answer, with queue, prefill and decode below it.

Names and attributes follow the GenAI conventions. A caller's traceparent is used; texts are never in spans. Without
`--otlp` nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from twostroke.server.facts import Listener, RequestFacts
from twostroke.types.errors import ConfigError

NS_PER_S = 1_000_000_000
OPERATIONS = {"/v1/completions": "text_completion"}


def otlp_spans(url: str, model: str, version: str, clock: Callable[[], float]) -> tuple[Listener, Callable[[], None]]:
    """Returns two functions: a listener that makes a span for each answer, and a function that stops the exporter. url:
    the address of a collector that takes OTLP over HTTP.

    clock: the engine's clock. Raises ConfigError when the packages are missing.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigError(
            "--otlp needs OpenTelemetry, which is not installed.",
            why="It is optional.",
            fix="pip install 'twostroke[otel]'",
        ) from None
    provider = TracerProvider(resource=Resource.create({"service.name": "twostroke", "service.version": version}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(_traces(url))))
    return Spans(provider.get_tracer("twostroke", version), model, clock), provider.shutdown


class Spans:
    """Makes spans of answers that have ended, with their real times. Satisfies Listener. tracer: a tracer of
    OpenTelemetry's API.

    clock: the engine's clock. wall_clock: the clock of the requests' facts, in seconds since 1970.
    """

    def __init__(
        self, tracer: Any, model: str, clock: Callable[[], float], wall_clock: Callable[[], float] = time.time
    ) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._model = model
        self._clock, self._wall_clock = clock, wall_clock
        self._propagator = TraceContextTextMapPropagator()

    def __call__(self, facts: RequestFacts) -> None:
        """Makes one span for an answer, and none for other requests."""
        if not facts.response_id:
            return
        from opentelemetry import trace

        operation = OPERATIONS.get(facts.path, "chat")
        span = self._tracer.start_span(
            f"{operation} {self._model}",
            context=self._propagator.extract(facts.trace),
            kind=trace.SpanKind.SERVER,
            start_time=_ns(facts.begin_s),
            attributes={
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "twostroke",
                "gen_ai.request.model": self._model,
                "gen_ai.response.model": self._model,
                "gen_ai.response.id": facts.response_id,
                "gen_ai.response.finish_reasons": facts.finish_reasons,
                "gen_ai.usage.input_tokens": facts.prompt_tokens,
                "gen_ai.usage.output_tokens": facts.output_tokens,
                "gen_ai.usage.cache_read.input_tokens": facts.cached_tokens,
                "http.response.status_code": facts.status,
                "twostroke.request_id": facts.request_id,
            },
        )
        if facts.status >= 400:
            span.set_attribute("error.type", str(facts.status))
            span.set_status(trace.StatusCode.ERROR)
        self._phases(facts, trace.set_span_in_context(span))
        span.end(_ns(facts.end_s))

    def _phases(self, facts: RequestFacts, below: Any) -> None:
        timings = facts.timings
        if timings is None:
            return
        to_unix_s = self._wall_clock() - self._clock()  # read one after the other, so they are of one moment
        marks = (timings.arrival_s, timings.first_scheduled_s, timings.first_token_s, timings.finished_s)
        for name, begin_s, end_s in zip(("queue", "prefill", "decode"), marks, marks[1:], strict=False):
            if begin_s is None or end_s is None:
                return
            phase = self._tracer.start_span(name, context=below, start_time=_ns(begin_s + to_unix_s))
            phase.end(_ns(end_s + to_unix_s))


def _traces(url: str) -> str:
    base = url.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"


def _ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)
