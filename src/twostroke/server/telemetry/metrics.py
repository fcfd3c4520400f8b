"""Prometheus metrics: one registry for each app, fed by the engine, whose observer it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twostroke.cost.work import Work
from twostroke.engine.observer import Observer
from twostroke.engine.scheduler.gauges import Gauges
from twostroke.server.live.recent import Recent
from twostroke.server.telemetry.gaps import Gaps
from twostroke.server.telemetry.vllm_names import VllmNames
from twostroke.types.adapter import AdapterPlaces
from twostroke.types.event import FinishedEvent
from twostroke.types.grammar import TOO_HEAVY
from twostroke.types.output import Prompt, Timings
from twostroke.types.plan import Plan
from twostroke.types.recorded.verified_guesses import NO_GUESSES, VerifiedGuesses, guesses_of
from twostroke.types.request import FinishReason
from twostroke.types.result import StepResult
from twostroke.types.sampling.forbidden_tokens import NO_TOKEN_LEFT

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_WHOLE = (FinishReason.STOP, FinishReason.LENGTH)
_TOKENS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


_GAUGES: tuple[tuple[str, str, str], ...] = (
    ("twostroke_requests_running", "Sequences in the batch.", "running"),
    ("twostroke_requests_waiting", "Sequences in the queue.", "waiting"),
    ("twostroke_kv_pages_free", "KV pages that hold nothing.", "pages_free"),
    ("twostroke_kv_pages_used", "KV pages of live sequences.", "pages_used"),
    ("twostroke_kv_pages_cached", "KV pages kept for prefixes.", "pages_cached"),
    (
        "twostroke_kv_waste_tokens",
        "Positions of used pages that hold nothing, or a copy of what another page holds.",
        "waste_tokens",
    ),
)
_COUNTERS: tuple[tuple[str, str, str], ...] = (
    ("twostroke_preemptions", "Sequences put back into the queue.", "preemptions_total"),
    ("twostroke_prefix_query_tokens", "Prompt tokens looked up in the prefix cache.", "prefix_query_tokens"),
    ("twostroke_prefix_hit_tokens", "Prompt tokens found in the prefix cache.", "prefix_hit_tokens"),
)


class _EngineCollector(Collector):
    """Reads the engine at each scrape, so that gauges can never be stale."""

    def __init__(self, read: Callable[[], Gauges], work: Callable[[], Work], adapters: AdapterPlaces | None) -> None:
        self._read = read
        self._work = work
        self._adapters = adapters

    def describe(self) -> list[Metric]:
        """Returns no metrics, because the engine is not asked before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields all gauges, and the counters that the engine itself keeps."""
        now = self._read()
        for name, text, field in _GAUGES:
            yield GaugeMetricFamily(name, text, value=getattr(now, field))
        for name, text, field in _COUNTERS:
            yield CounterMetricFamily(name, text, value=getattr(now, field))
        pages = now.pages_free + now.pages_used + now.pages_cached
        share = now.pages_used / pages if pages else 0.0
        yield GaugeMetricFamily("twostroke_kv_used_ratio", "Share of KV pages held by live sequences.", value=share)
        yield from _work_metrics(self._work())
        if self._adapters is not None:
            yield from _adapter_metrics(self._adapters, now)


def _adapter_metrics(adapters: AdapterPlaces, now: Gauges) -> Iterator[Metric]:
    """Yields the metrics of the adapters that are used."""
    yield GaugeMetricFamily("twostroke_adapter_places", "Adapters that can be used at once.", value=adapters.places)
    used = GaugeMetricFamily("twostroke_adapter_used", "1: sequences have this adapter.", labels=["state", "adapter"])
    for state, slots in (("running", now.running_adapters), ("waiting", now.waiting_adapters)):
        for slot in sorted(slots):
            used.add_metric([state, adapters.name_of(slot)], 1)
    yield used


def _work_metrics(work: Work) -> Iterator[Metric]:
    """Yields how much all steps so far computed and moved."""
    yield CounterMetricFamily("twostroke_flops", "Arithmetic of all steps; a multiply-add counts two.", work.flops)
    moved = CounterMetricFamily("twostroke_moved_bytes", "Bytes that all steps moved, by kind.", labels=["kind"])
    moved.add_metric(["weights"], work.weight_bytes)
    moved.add_metric(["kv"], work.kv_bytes)
    moved.add_metric(["activations"], work.activation_bytes)
    yield moved


class ServerMetrics(Observer):
    """All metrics of the server; also the engine's observer. Safe to call from several threads; never raises."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.recent = Recent()
        self._aliases = CollectorRegistry()
        made = self.registry
        self.prompt_tokens = Counter("twostroke_prompt_tokens", "Prompt tokens taken in.", registry=made)
        self.generation_tokens = Counter("twostroke_generation_tokens", "Tokens generated.", registry=made)
        self.finished = Counter("twostroke_requests_finished", "Completions that ended.", ["reason"], registry=made)
        self.faults = Counter("twostroke_request_faults", "Completions that a fault ended.", ["code"], registry=made)
        self.responses = Counter("twostroke_http_responses", "HTTP responses sent.", ["status"], registry=made)
        self.tiles = Counter("twostroke_image_tiles", "Parts of images that were encoded.", registry=made)
        self.encode_s = Counter("twostroke_image_encode_seconds", "Seconds that encodes took.", registry=made)
        self.ttft = _seconds("twostroke_time_to_first_token_seconds", "From arrival to the first token.", made)
        self.itl = Gaps("twostroke_inter_token_latency_seconds", "Between two tokens of one completion.", _LATENCY_S)
        made.register(self.itl)
        self.e2e = _seconds("twostroke_request_seconds", "From arrival to the last token.", made)
        self.parts = Counter(
            "twostroke_request_part_seconds", "What completions' time went to.", ["part"], registry=made
        )
        self.queue = _seconds("twostroke_request_queue_seconds", "From arrival to the first step.", made)
        self.step = _seconds("twostroke_step_seconds", "One engine step.", made)
        self.prefill_tokens = _tokens("twostroke_step_prefill_tokens", "Prompt positions computed in a step.", made)
        self.decode_tokens = _tokens("twostroke_step_decode_tokens", "Decoding positions of a step, no guesses.", made)
        self.step_tokens = _tokens("twostroke_step_tokens", "Prompt positions and new tokens of a step.", made)
        self.guesses = GuessMetrics(made)
        made.register(self.guesses)
        self.requests = RequestMetrics(made)

    def attach(
        self,
        read: Callable[[], Gauges],
        work: Callable[[], Work] = Work,
        adapters: AdapterPlaces | None = None,
    ) -> None:
        """Adds the engine's gauges, and counters of the FLOPs and bytes of its steps, to this object's registry. Call
        it only once. adapters: the places for adapters, if the engine has any."""
        self.registry.register(_EngineCollector(read, work, adapters))
        self.guesses.elsewhere = lambda: read().guesses

    def alias(self, model: str, kv_facts: Mapping[str, Any]) -> None:
        """Serve the `vllm:*` names too, with vLLM's labels."""
        labels = {"engine": "0", "model_name": model}
        self._aliases.register(VllmNames(self.registry, labels, lambda: kv_facts))

    def on_step(self, plan: Plan, result: StepResult, duration_s: float) -> None:
        """Observe one engine step: its length, and how its rows divide into prompt positions, decoding positions and
        guesses."""
        prompt = 0
        for s in plan.sequences:  # no sum of calls, which would be slower: most sequences decode
            if s.start < (end := len(s.request.prompt_token_ids)):
                prompt += min(s.start + s.num_tokens, end) - s.start
        self.step.observe(duration_s)
        self.decode_tokens.observe(plan.num_tokens - prompt - plan.num_draft_tokens)
        if plan.span is not None and plan.span.ends:
            prompt += plan.span.planned.num_tokens
        self.prefill_tokens.observe(prompt)
        self.step_tokens.observe(prompt + sum(map(len, result.sampled.values())))
        if result.encode_s:
            self.tiles.inc(len(result.encodes.keys))
            self.encode_s.inc(result.encode_s)
        if plan.num_draft_tokens:
            self.guesses.on_step(plan, result)

    def on_first_token(self, ttft_s: float) -> None:
        """Observe a completion's first token."""
        self.ttft.observe(ttft_s)
        self.recent.ttft_s.append(ttft_s)

    def on_next_tokens(self, gaps_s: Sequence[float]) -> None:
        """Observe the gaps before each later token of a completion."""
        self.itl.observe(gaps_s)
        self.recent.itl_s.extend(gaps_s)

    def on_finish(self, finished: FinishedEvent, timings: Timings) -> None:
        """Observe a completion's end, for whatever reason."""
        self.finished.labels(finished.reason.value).inc()
        if finished.reason is FinishReason.ERROR:
            late = finished.retry_after_s is not None
            self.faults.labels("overloaded" if late else _fault_code(finished.error or "")).inc()
        generated = finished.num_output_tokens + (finished.stopped_by is not None)
        self.generation_tokens.inc(generated)
        self.requests.finished(finished, timings, generated)
        self.guesses.finished(timings)
        if timings.queue_s is not None:
            self.queue.observe(timings.queue_s)
        if timings.e2e_s is not None:
            self.e2e.observe(timings.e2e_s)
        if timings.parts is not None:
            for name, seconds in timings.parts.by_name().items():
                self.parts.labels(name.removesuffix("_s")).inc(max(0.0, seconds))

    def families(self) -> Iterator[Metric]:
        """Yields all metrics, those with vLLM's names included."""
        yield from self.registry.collect()
        yield from self._aliases.collect()

    def text(self) -> bytes:
        """Returns all metrics in the exposition format, version 0.0.4."""
        return generate_latest(self.registry) + generate_latest(self._aliases)


class GuessMetrics(Collector):
    """Counters of tokens that were guessed and verified. elsewhere: returns the guesses that replicas of a front
    verified."""

    def __init__(self, made: CollectorRegistry) -> None:
        self.elsewhere: Callable[[], VerifiedGuesses] = VerifiedGuesses
        self._here = NO_GUESSES
        self.won = Counter("twostroke_draft_won_seconds", "Time of steps spared by guesses, predicted.", registry=made)
        self.lost = Counter("twostroke_draft_lost_seconds", "Time of verifying guesses, predicted.", registry=made)

    def finished(self, timings: Timings) -> None:
        """Count the guesses of a completion that has ended."""
        self.won.inc(timings.guesses_won_s)
        self.lost.inc(timings.guesses_lost_s)

    def on_step(self, plan: Plan, result: StepResult) -> None:
        """Count the guesses that a step verified."""
        self._here = self._here.plus(guesses_of(plan, result))

    def describe(self) -> list[Metric]:
        """Returns no metrics, because nothing is read before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields the counters with their present sums."""
        now = self._here.plus(self.elsewhere())
        for name, text, count in (
            ("twostroke_drafts", "Guesses of one or more tokens that were verified.", now.guesses),
            ("twostroke_draft_tokens", "Tokens guessed and verified.", now.tokens),
            ("twostroke_accepted_draft_tokens", "Tokens guessed and accepted.", now.accepted),
        ):
            yield CounterMetricFamily(name, text, value=count)
        text = "Accepted tokens by their place in the guess."
        by_place = CounterMetricFamily("twostroke_accepted_draft_tokens_per_pos", text, labels=["position"])
        for place, count in enumerate(now.by_place):
            by_place.add_metric([str(place)], count)
        yield by_place


class RequestMetrics:
    """Measurements of each completion, recorded when it ends, and of requests' parameters, recorded when they arrive.
    """

    def __init__(self, made: CollectorRegistry) -> None:
        self.inference = _seconds("twostroke_request_inference_seconds", "From the first step to the last token.", made)
        self.prefill = _seconds("twostroke_request_prefill_seconds", "From the first step to the first token.", made)
        self.decode = _seconds("twostroke_request_decode_seconds", "From the first token to the last.", made)
        self.mean_itl = _seconds("twostroke_request_mean_itl_seconds", "A completion's mean gap between tokens.", made)
        self.prompt_tokens = _tokens("twostroke_request_prompt_tokens", "Prompt tokens of a completion.", made)
        self.tokens = _tokens("twostroke_request_generation_tokens", "Tokens generated for a completion.", made)
        self.preemptions = _tokens("twostroke_request_preemptions", "Times that a completion was put back.", made)
        self.computed = _tokens("twostroke_request_computed_prompt_tokens", "Prompt tokens that were not cached.", made)
        self.longest = _tokens("twostroke_request_longest_generation_tokens", "The longest of a prompt's n.", made)
        self.prompt_cached = Counter("twostroke_prompt_tokens_cached", "Prompt tokens found cached.", registry=made)
        self.prompt_computed = Counter("twostroke_prompt_tokens_computed", "Prompt tokens computed.", registry=made)
        self.asked_n = _tokens("twostroke_request_asked_n", "Completions asked for of a prompt.", made)
        self.pooled = Counter("twostroke_pooled_texts", "Texts or pairs read to be embedded or scored.", registry=made)
        self.asked_tokens = _tokens("twostroke_request_asked_tokens", "Most tokens of each completion asked for.", made)

    def asked(self, prompt: Prompt, context_tokens: int) -> None:
        """Record the parameters of a prompt that came in."""
        self.pooled.inc(prompt.pooling is not None)
        room = context_tokens - len(prompt.token_ids)
        self.asked_n.observe(prompt.params.n)
        self.asked_tokens.observe(room if prompt.params.max_tokens is None else prompt.params.max_tokens)

    def _sources(self, finished: FinishedEvent, *, was_read: bool) -> None:
        """Records how many prompt tokens were computed and how many came from the prefix cache. was_read: whether the
        whole prompt was processed. A request's completions share the prompt, so the counters count only the first
        completion."""
        computed = finished.num_prompt_tokens - finished.num_cached_tokens
        if was_read:
            self.computed.observe(computed)
        if was_read and finished.request_id.endswith("/0"):
            self.prompt_cached.inc(finished.num_cached_tokens)
            self.prompt_computed.inc(computed)

    def finished(self, finished: FinishedEvent, timings: Timings, generated: int) -> None:
        """Records the end of a completion. Times are recorded only where the completion reached the events between
        which they are measured, such as its first token."""
        self.prompt_tokens.observe(finished.num_prompt_tokens)
        self.tokens.observe(generated)
        self.preemptions.observe(finished.num_preemptions)
        self._sources(finished, was_read=timings.first_token_s is not None or finished.reason in _WHOLE)
        begun_s, first_s, ended_s = timings.first_scheduled_s, timings.first_token_s, timings.finished_s
        if begun_s is None or ended_s is None:
            return
        self.inference.observe(ended_s - begun_s)
        if first_s is not None:
            self.prefill.observe(first_s - begun_s)
            self.decode.observe(ended_s - first_s)
        mean_s = timings.mean_itl_s(generated)
        if mean_s is not None:
            self.mean_itl.observe(mean_s)


def _seconds(name: str, text: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, text, buckets=_LATENCY_S, registry=registry)


def _tokens(name: str, text: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, text, buckets=_TOKENS, registry=registry)


def _fault_code(error: str) -> str:
    if error.startswith(TOO_HEAVY):
        return "grammar_too_heavy"
    return "no_token_left" if error == NO_TOKEN_LEFT else "internal_error"
