"""Builds a server of several models: the parts of each model, and the parts that all models share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from msgspec import Struct
from starlette.types import ASGIApp

from twostroke.assembly.machine.heap import keep_little
from twostroke.assembly.settings.config import resolve_overload, resolve_server
from twostroke.assembly.settings.env import asked_by_environment
from twostroke.assembly.settings.resolver import Resolver, collect
from twostroke.distributed.fleet.loading import LoadingRules
from twostroke.engine.async_engine import AsyncEngine
from twostroke.server.app import attach_stored, guarded
from twostroke.server.build import access_of, admission_of, stored_chats, stored_work, tool_servers
from twostroke.server.built import BuiltServer
from twostroke.server.gate.door import UNKNOWN_WAIT_S
from twostroke.server.parts import ServerParts
from twostroke.server.several.group import Launch, with_shared
from twostroke.server.several.models import Models
from twostroke.server.several.pulls import Pulls, PullTools
from twostroke.server.several.source import ModelSource
from twostroke.server.several.switch import ModelSwitch
from twostroke.server.telemetry.metrics import ServerMetrics
from twostroke.types.errors import TwostrokeError


def build_several(
    sources: Sequence[ModelSource],
    options: Mapping[str, Any],
    launch: Launch,
    rules: LoadingRules,
    fetching: Fetching | None = None,
) -> BuiltServer:
    """Build a server of several models. options: the options for the whole server. Raises TwostrokeError when no model
    can be served."""
    keep_little()
    models = Models(sources, launch, rules)
    if fetching is not None:
        made, command = fetching.made, fetching.command
        environment = {name: value for name, value in launch.environment.items() if value != launch.secret}
        tools = PullTools(command, environment, lambda name, path: models.add(made(name, path)), models.note)
        models.pulls = Pulls(tools)
    first = _first_built(models, launch)
    asked = collect({**options, "served_name": None}, asked_by_environment())
    resolver = Resolver(asked)
    resolve_server(resolver, first.serving.served_name)
    tokens = sum(group.plan().found.kv_plan.tokens for group in models.groups.values() if group.parts is not None)
    resolve_overload(resolver, tokens)
    resolved = resolver.resolved()
    serving = replace(
        first.serving,
        engine=cast(AsyncEngine, models),
        stored=stored_work(resolved),
        chats=stored_chats(resolved),
        tool_servers=tool_servers(resolved),
    )
    shared = ServerParts(
        serving,
        admission_of(resolved, lambda requests, tokens: _wait_s(models, requests, tokens)),
        access_of(resolved),
        replace(first.telemetry, metrics=ServerMetrics()),
    )
    models.shared = shared
    for group in models.groups.values():
        if group.parts is not None:
            group.parts = with_shared(group.parts, shared)

    def make_app(parts: ServerParts) -> ASGIApp:
        models.shared = parts
        switch = ModelSwitch(models)
        attach_stored(switch, parts, models.batch_may_run)
        return guarded(switch, parts)

    facts = {"served_name": first.serving.served_name, "models": list(models.groups), "names": models.all_names()}
    return BuiltServer(shared, resolved, facts, models.close, make_app, models.follow_names)


class Fetching(Struct, frozen=True):
    """How models are downloaded while the server runs. command: returns the command line of `twostroke pull` with these
    arguments. made: called with the name and path of a downloaded model; returns its ModelSource, with which the server
    adds it."""

    command: Callable[[Sequence[str]], Sequence[str]]
    made: Callable[[str, str], ModelSource]


def _first_built(models: Models, launch: Launch) -> ServerParts:
    """Builds the models that are loaded at the start. Also builds other models, in their order, as long as no model
    could be built.

    Returns the parts of the first model that was built. When no model can be served, raises the error of the last one.
    """
    found, last = None, None
    for group in models.groups.values():
        if found is not None and not (group.source.at_start or group.source.pinned):
            continue
        try:
            parts = models.build(group)
            found = found or parts
        except TwostrokeError as error:
            last, group.problem = error, str(error)
            launch.say(f"{group.name} cannot be served: {error}")
    if found is None:
        raise last or TwostrokeError("No model is named.")
    return found


def _wait_s(models: Models, requests: int, tokens: int) -> float:
    """Predicts the seconds until so many waiting requests, with so many prompt tokens together, have their first token.
    Returns the longest time that a loaded model would take."""
    found = [group.forecast.wait_s(requests, tokens) for group in models.groups.values() if group.process is not None]
    return max(found, default=UNKNOWN_WAIT_S)
