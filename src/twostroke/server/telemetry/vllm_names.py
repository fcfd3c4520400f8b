"""The `vllm:*` names: an alias set over our own metrics, so that dashboards made for vLLM work unchanged.

Nothing is counted twice: at a scrape our own samples are read and given vLLM's names and labels. Meanings follow vLLM's
own test (tests/entrypoints/serve/instrumentator/test_metrics.py); buckets are ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

GAUGES = {
    "num_requests_running": "twostroke_requests_running",
    "num_requests_waiting": "twostroke_requests_waiting",
    "kv_cache_usage_perc": "twostroke_kv_used_ratio",
}
COUNTERS = {
    "prompt_tokens": "twostroke_prompt_tokens",
    "prompt_tokens_cached": "twostroke_prompt_tokens_cached",
    "generation_tokens": "twostroke_generation_tokens",
    "num_preemptions": "twostroke_preemptions",
    "prefix_cache_queries": "twostroke_prefix_query_tokens",
    "prefix_cache_hits": "twostroke_prefix_hit_tokens",
    "estimated_flops_per_gpu": "twostroke_flops",
    "spec_decode_num_drafts": "twostroke_drafts",
    "spec_decode_num_draft_tokens": "twostroke_draft_tokens",
    "spec_decode_num_accepted_tokens": "twostroke_accepted_draft_tokens",
    "spec_decode_num_accepted_tokens_per_pos": "twostroke_accepted_draft_tokens_per_pos",
}
HISTOGRAMS = {
    "time_to_first_token_seconds": "twostroke_time_to_first_token_seconds",
    "inter_token_latency_seconds": "twostroke_inter_token_latency_seconds",
    "time_per_output_token_seconds": "twostroke_inter_token_latency_seconds",  # the older name of the same metric
    "request_time_per_output_token_seconds": "twostroke_request_mean_itl_seconds",
    "e2e_request_latency_seconds": "twostroke_request_seconds",
    "request_queue_time_seconds": "twostroke_request_queue_seconds",
    "request_inference_time_seconds": "twostroke_request_inference_seconds",
    "request_prefill_time_seconds": "twostroke_request_prefill_seconds",
    "request_decode_time_seconds": "twostroke_request_decode_seconds",
    "request_prompt_tokens": "twostroke_request_prompt_tokens",
    "request_prefill_kv_computed_tokens": "twostroke_request_computed_prompt_tokens",
    "request_max_num_generation_tokens": "twostroke_request_longest_generation_tokens",
    "request_generation_tokens": "twostroke_request_generation_tokens",
    "request_params_n": "twostroke_request_asked_n",
    "request_params_max_tokens": "twostroke_request_asked_tokens",
    "request_num_preemptions": "twostroke_request_preemptions",
    "iteration_tokens_total": "twostroke_step_tokens",
}
FINISHED, WAITING_BY_REASON, CACHE = "request_success", "num_requests_waiting_by_reason", "cache_config_info"
BY_SOURCE = "prompt_tokens_by_source"
ADAPTERS = "lora_requests_info"
"""The metric of LoRA adapters in use. As in vLLM, only an engine that has places for adapters has it, and its only
labels are max_lora, waiting_lora_adapters and running_lora_adapters."""
SOURCES = {
    "local_compute": "twostroke_prompt_tokens_computed",
    "local_cache_hit": "twostroke_prompt_tokens_cached",
    "external_kv_transfer": "",  # this server has no metric for it
}
REASONS = ("stop", "length", "abort", "error")


class VllmNames(Collector):
    """Yields our own metrics again under vLLM's names. labels: the labels of every sample. facts: returns the facts of
    the KV cache, for cache_config_info."""

    def __init__(
        self, own: CollectorRegistry, labels: Mapping[str, str], facts: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._own = own
        self._labels = dict(labels)
        self._facts = facts

    def describe(self) -> list[Metric]:
        """Returns no metrics, because nothing is read before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields all aliases, with the present values of our own registry."""
        own = {family.name: family for family in self._own.collect()}
        for names, kind in ((GAUGES, "gauge"), (COUNTERS, "counter"), (HISTOGRAMS, "histogram")):
            for name, ours in names.items():
                if ours in own:
                    yield self._alias(f"vllm:{name}", own[ours], kind)
        yield self._finished(own.get("twostroke_requests_finished"))
        yield self._by_source(own)
        yield self._waiting(own.get("twostroke_requests_waiting"))
        yield self._cache()
        if "twostroke_adapter_places" in own:
            yield self._used_adapters(own)

    def _alias(self, name: str, family: Metric, kind: str) -> Metric:
        made = Metric(name, family.documentation, kind)
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                ending = sample.name.removeprefix(family.name)
                made.add_sample(name + ending, {**self._labels, **sample.labels}, sample.value)
        return made

    def _finished(self, family: Metric | None) -> Metric:
        made = CounterMetricFamily(
            f"vllm:{FINISHED}", "Completions that ended.", labels=[*self._labels, "finished_reason"]
        )
        counts = dict.fromkeys(REASONS, 0.0)
        for sample in _totals(family):
            counts[sample.labels["reason"]] = sample.value
        for reason, value in counts.items():
            made.add_metric([*self._labels.values(), reason], value)
        return made

    def _by_source(self, own: Mapping[str, Metric]) -> Metric:
        made = CounterMetricFamily(
            f"vllm:{BY_SOURCE}", "Tokens of prompts that were read.", labels=[*self._labels, "source"]
        )
        for source, name in SOURCES.items():
            made.add_metric([*self._labels.values(), source], sum(each.value for each in _totals(own.get(name))))
        return made

    def _waiting(self, family: Metric | None) -> Metric:
        made = GaugeMetricFamily(
            f"vllm:{WAITING_BY_REASON}", "Sequences in the queue.", labels=[*self._labels, "reason"]
        )
        value = sum(sample.value for sample in family.samples) if family is not None else 0.0
        made.add_metric([*self._labels.values(), "capacity"], value)
        made.add_metric([*self._labels.values(), "deferred"], 0.0)
        return made

    def _used_adapters(self, own: Mapping[str, Metric]) -> Metric:
        """Returns the metric of LoRA adapters, whose labels list the adapters' names, separated by commas. The value is
        the time: dashboards take the latest sample."""
        used = [sample.labels for sample in own["twostroke_adapter_used"].samples]
        names = {
            state: ",".join(each["adapter"] for each in used if each["state"] == state)
            for state in ("running", "waiting")
        }
        made = GaugeMetricFamily(
            f"vllm:{ADAPTERS}",
            "Adapters of running and of waiting sequences.",
            labels=["max_lora", "waiting_lora_adapters", "running_lora_adapters"],
        )
        places = sum(sample.value for sample in own["twostroke_adapter_places"].samples)
        made.add_metric([f"{places:.0f}", names["waiting"], names["running"]], time.time())
        return made

    def _cache(self) -> Metric:
        facts = {name: str(value) for name, value in self._facts().items()}
        made = GaugeMetricFamily(f"vllm:{CACHE}", "Facts of the KV cache.", labels=[*self._labels, *facts])
        made.add_metric([*self._labels.values(), *facts.values()], 1)
        return made


def _totals(family: Metric | None) -> Iterable[Any]:
    return () if family is None else (sample for sample in family.samples if sample.name.endswith("_total"))
