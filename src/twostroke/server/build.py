"""Builds the server's parts from its settings: engine, metrics, settings."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from twostroke import __version__
from twostroke.assembly import engine as assemble
from twostroke.assembly.find import Found, find_model
from twostroke.assembly.grammars import GrammarsAhead
from twostroke.assembly.machine.heap import keep_little
from twostroke.assembly.settings.config import resolve_overload, resolve_server, room_sentence
from twostroke.assembly.settings.engine_settings import (
    AdapterSettings,
    CacheSettings,
    CpuSettings,
    DeviceSettings,
    MemorySettings,
    ModelSettings,
    StepSettings,
)
from twostroke.assembly.settings.option import Field
from twostroke.assembly.settings.resolver import Resolved
from twostroke.assembly.settings.server_settings import NameSettings
from twostroke.engine.async_engine import AsyncEngine
from twostroke.engine.disk.files import KV_FOLDER
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.server.adapters import ServedAdapters
from twostroke.server.admission import Access, Admission, Limits
from twostroke.server.api.changed.client_lines import ClientLines
from twostroke.server.api.fields.field_check import FieldCheck
from twostroke.server.attached.tool_servers import ToolServer
from twostroke.server.built import BuiltServer
from twostroke.server.card import card_of
from twostroke.server.facts import Listener
from twostroke.server.gate.body_budget import BodyBudget, most_of_one_body
from twostroke.server.gate.door import Door, DoorRules
from twostroke.server.gate.forecast import Forecast, Listeners, Room
from twostroke.server.gate.quarantine import Quarantine
from twostroke.server.gate.reach import Reach
from twostroke.server.live.about import about
from twostroke.server.live.view import EngineView
from twostroke.server.parts import ServerParts, Telemetry
from twostroke.server.process.crash_notes import CrashNotes
from twostroke.server.serving import Serving, new_hex_id
from twostroke.server.slots.kept import SlotDisk, Slots
from twostroke.server.stored.chats import StoredChats
from twostroke.server.stored.records import Bounds
from twostroke.server.stored.work import StoredWork
from twostroke.server.telemetry.disk_metrics import DiskCollector
from twostroke.server.telemetry.logs import request_ended
from twostroke.server.telemetry.metrics import ServerMetrics
from twostroke.server.telemetry.spans import otlp_spans
from twostroke.text.special_tokens import read_special_tokens
from twostroke.text.talk.ask import asked_format
from twostroke.text.talk.learn.find import find_format
from twostroke.types.errors import ConfigError
from twostroke.types.reading.user_path import user_path

SHOWN: tuple[Field[Any], ...] = (
    *(NameSettings.served_name, ModelSettings.weights, CacheSettings.key_factors, MemorySettings.weight_bytes),
    *(CpuSettings.threads, CpuSettings.cpu_level, DeviceSettings.device),
    *(CacheSettings.kv_tokens, CacheSettings.kv_memory, StepSettings.context),
)
"""The settings that are printed at a start."""
SAME_BITS: tuple[Field[Any], ...] = (
    *(ModelSettings.model, ModelSettings.revision, ModelSettings.weights),
    *(CacheSettings.kv_format, CacheSettings.key_factors, CpuSettings.cpu_level, DeviceSettings.device),
)
"""The settings on which the bits of an answer depend."""


def build_server(
    model: str,
    options: Mapping[str, Any],
    progress: Callable[[int, int, str], None] | None = None,
    notes: CrashNotes | None = None,
) -> BuiltServer:
    """Load a model and make everything that `run` needs. notes: shared with a supervisor. Raises TwostrokeError."""
    keep_little()
    found = find_model(model, options)
    resolve_server(found.resolver, found.name)
    resolve_overload(found.resolver, found.kv_plan.tokens)
    metrics = ServerMetrics()
    folder = adapter_folder(found.resolver.asked_value(AdapterSettings.adapter_folder))
    forecast = _forecast(found)
    quarantine = Quarantine(notes)
    witness = None if notes is None else quarantine
    listening = Listeners(metrics, forecast)
    heart = assemble.build_heart(found, progress, assemble.print_report, listening, witness, GrammarsAhead)
    resolved = heart.resolved
    if heart.adapters is not None:
        for name in (resolved.names.served_name, *resolved.names.other_names):
            heart.adapters.reserve(name)
    if heart.disk is not None:
        metrics.registry.register(DiskCollector(heart.disk))
    engine = AsyncEngine(heart.stepper, alarm=heart.stepper.alarm)

    def wait_s(requests: int, tokens: int) -> float:
        gauges = engine.gauges()
        return forecast.wait_s(requests, tokens, places_free=not gauges.waiting)

    def ends_s(count: int) -> float:
        return forecast.wait_s(count, 0, places_free=False)

    listeners: list[Listener] = [request_ended]
    if resolved.tracing.otlp is not None:
        spans, end = otlp_spans(resolved.tracing.otlp, resolved.names.served_name, __version__, heart.stepper.clock)
        heart.closing.callback(end)
        listeners.append(spans)
    history, shown = heart.session.ledger.history, about(resolved, heart.costs, __version__)
    serving = Serving(
        engine=engine,
        tokenizer=heart.tokenizer,
        template=heart.template,
        context_tokens=resolved.steps.context,
        defaults=heart.sampling_defaults,
        fingerprint=resolved_fingerprint(resolved),
        adapters=ServedAdapters(heart.adapters, folder),
        card=card_of(found.folder, found.name, resolved.model.weights, heart.spec, resolved.memory.weight_bytes),
        embedder=heart.texts.embedder,
        reranker=heart.texts.reranker,
        eyes=heart.eyes,
        slots=None if heart.disk is None else slots_in(Path(resolved.disk.cache), heart.disk),
        view=EngineView(heart.session.ledger, heart.cache.page_states, heart.stepper.clock, shown),
    )
    parts = ServerParts(
        settled(serving, resolved, found.folder.path),
        replace(admission_of(resolved, wait_s, ends_s), quarantine=quarantine),
        access_of(resolved),
        Telemetry(metrics, listeners, lambda request: heart.explainer.explain(request), history.work),
    )
    facts = resolved.values(*SHOWN) | {"room": room_sentence(resolved)}
    facts["threads_reason"] = resolved.reason_of(CpuSettings.threads)
    return BuiltServer(parts, resolved, facts, heart.close)


def adapter_folder(text: str | None) -> Path | None:
    """Returns the folder from which clients may load adapters; None when there is none. Raises ConfigError when it is
    no folder."""
    folder = None if text is None else user_path(text)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--adapter-folder {folder} is no folder.", fix="Give one that holds folders of adapters.")
    return folder


def _forecast(found: Found) -> Forecast:
    resolved = found.resolver.resolved()
    room = Room(resolved.steps.max_sequences, resolved.steps.max_step_tokens)
    return Forecast(StepTime.of(found.costs.now, not found.costs.measured), room)


def settled(serving: Serving, resolved: Resolved, folder: Path) -> Serving:
    """Returns `serving` with the fields that come from the settings and the model's folder, such as names, tool format
    and stores. Raises ConfigError."""
    form = serving.format
    if serving.template is not None:
        asked = (resolved.talk.tool_format, resolved.talk.reasoning_format)
        form = asked_format(find_format(serving.template, serving.tokenizer), *asked)
    return replace(
        serving,
        served_name=resolved.names.served_name,
        other_names=resolved.names.other_names,
        version=__version__,
        created_s=int(time.time()),
        fields=FieldCheck(strict=resolved.requests.strict_fields),
        client_lines=ClientLines(keep=resolved.requests.client_lines == "keep"),
        special_texts=read_special_tokens(folder).texts,
        stored=stored_work(resolved),
        chats=stored_chats(resolved),
        tool_servers=tool_servers(resolved),
        format=form,
    )


def stored_work(resolved: Resolved) -> StoredWork | None:
    """Returns the store of responses, files and batches; None when nothing is kept. Raises ConfigError."""
    folder = resolved.stored.stored_work
    if folder is None:
        return None
    bounds = Bounds(max_bytes=resolved.stored.stored_bytes, age_s=resolved.stored.stored_age)
    return StoredWork(user_path(folder), bounds, new_hex_id)


def slots_in(cache: Path, disk: SlotDisk) -> Slots:
    """Returns the slots of a server. Saved slots are files in the folder of the pages, so that the same commands list
    and remove both. cache: the cache folder."""
    return Slots(user_path(cache) / KV_FOLDER / "slots", disk)


def stored_chats(resolved: Resolved) -> StoredChats | None:
    """Returns the store of the page's chats; None when they stay in browsers. Raises ConfigError."""
    folder = resolved.stored.chats
    return None if folder is None else StoredChats(user_path(folder), resolved.stored.chats_bytes)


def tool_servers(resolved: Resolved) -> tuple[ToolServer, ...]:
    """Returns the servers of tools that the page may ask."""
    return tuple(ToolServer(name, url) for name, url in dict(resolved.page.mcp).items())


def admission_of(
    resolved: Resolved, wait_s: Callable[[int, int], float], ends_s: Callable[[int], float] | None = None
) -> Admission:
    """Returns the limits on requests: their bodies, their time, and how many are accepted at a time. wait_s, ends_s:
    predict when a refused client may try again; see Door."""
    load = resolved.load
    rules = DoorRules(load.queued_requests, load.queued_tokens, load.key_requests, load.key_tokens)
    return Admission(
        limits=Limits(body_bytes=most_of_one_body(load.body_memory), deadline_s=load.deadline),
        door=Door(rules, wait_s, ends_s),
        bodies=BodyBudget(load.body_memory),
        drain_s=load.drain,
    )


def access_of(resolved: Resolved) -> Access:
    """Returns who may use the server, and from where."""
    listen = resolved.listen
    return Access(listen.api_key, Reach(listen.allow_host, listen.allow_origin, resolved.names.root_path))


def resolved_fingerprint(resolved: Resolved) -> str:
    """Returns a fingerprint of the build, the model, the formats and the kernels. The same fingerprint means the same
    bits."""
    words = [__version__, *(str(value) for value in resolved.values(*SAME_BITS).values())]
    return "ts-" + hashlib.blake2b("\0".join(words).encode(), digest_size=6).hexdigest()
