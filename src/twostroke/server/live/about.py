"""GET /v1/engine/about: the settings and the machine's limits. The web page's live view of the engine needs them to
show the records of steps that it receives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twostroke.assembly.settings.engine_settings import CacheSettings, CpuSettings, ModelSettings, StepSettings
from twostroke.assembly.settings.option import Field
from twostroke.assembly.settings.resolver import Resolved
from twostroke.cost.what_if import WhatIf
from twostroke.distributed.wire.frames import ReplicaFacts
from twostroke.types.spec.formats import PAGE_TOKENS, WeightKind

SHOWN: tuple[Field[Any], ...] = (
    *(ModelSettings.weights, CacheSettings.kv_format, CacheSettings.key_factors),
    *(CpuSettings.threads, CpuSettings.cpu_level),
    *(StepSettings.context, StepSettings.max_step_tokens, StepSettings.max_sequences, CacheSettings.kv_tokens),
)


def about(resolved: Resolved, costs: WhatIf, version: str) -> dict[str, Any]:
    """Returns the settings, the objectives in seconds (null: none), and the machine's limits: its rates as measured on
    this machine, or from the catalogue."""
    kind = costs.formats[costs.weights].kind.arithmetic if costs.weights in costs.formats else WeightKind.INT8  # stored
    return {
        "version": version,
        "model": resolved.names.served_name,
        "page_tokens": PAGE_TOKENS,
        "settings": resolved.values(*SHOWN),
        "objectives": {"ttft_s": resolved.steps.ttft, "itl_s": resolved.steps.itl},
        "limits": {
            "measured": costs.measured,
            "source": costs.source,
            "read_bytes_per_s": costs.machine.read_bytes_per_s,
            "flops_per_s": costs.machine.product_rate(kind),
            "unit": "int8 operations" if kind in (WeightKind.INT8, WeightKind.INT4) else "FLOPs",
        },
    }


def front_about(resolved: Resolved, facts: ReplicaFacts, num_replicas: int, version: str) -> dict[str, Any]:
    """Returns the facts of a front: those that all of its replicas share. kv_tokens: the tokens in the KV caches of all
    replicas together."""
    return {
        "version": version,
        "model": resolved.names.served_name,
        "page_tokens": facts.page_tokens,
        "settings": {
            "weights": facts.arithmetic.weights,
            "kv_format": facts.arithmetic.kv_format,
            "key_factors": facts.arithmetic.key_factors,
            "context": facts.context_tokens,
            "max_sequences": facts.max_sequences * num_replicas,
            "kv_tokens": facts.pool_tokens * num_replicas,
            "replicas": num_replicas,
        },
        "objectives": {"ttft_s": facts.objectives.ttft_s, "itl_s": facts.objectives.itl_s},
    }


def planned_about(resolved: Resolved, version: str) -> dict[str, Any]:
    """Returns the facts of one model of several, from its settings: its process need not run."""
    return {
        "version": version,
        "model": resolved.names.served_name,
        "page_tokens": PAGE_TOKENS,
        "settings": {**resolved.values(*SHOWN), "replicas": 1},
        "objectives": {"ttft_s": resolved.steps.ttft, "itl_s": resolved.steps.itl},
    }


def kv_facts(about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts of the KV cache, under the names of vLLM's cache_config_info."""
    settings = about.get("settings", {})
    tokens, context = settings.get("kv_tokens", 0), settings.get("context", 0)
    return {
        "block_size": about.get("page_tokens", 0),
        "cache_dtype": settings.get("kv_format", ""),
        "kv_cache_size_tokens": tokens,
        "kv_cache_max_concurrency": round(tokens / context, 2) if context else 0,
    }
