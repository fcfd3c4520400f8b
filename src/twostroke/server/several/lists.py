"""The routes that list all models of a server, and those that load and unload one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from twostroke.distributed.fleet.loading import ModelState
from twostroke.server.api.model_list import model_list
from twostroke.server.api.ollama import facts as ollama
from twostroke.server.api.ollama.names import shown_name
from twostroke.server.api.ollama.shapes import stamp
from twostroke.server.api.sse import line_json
from twostroke.server.errors import HttpProblem, unknown_among, unknown_request
from twostroke.server.gate.body import reading
from twostroke.server.gate.decode import body_kind, decode
from twostroke.server.several.events import model_events
from twostroke.server.several.group import ModelGroup
from twostroke.server.several.metrics import all_metrics
from twostroke.server.several.models import Models
from twostroke.server.telemetry.explanations import explanation_of
from twostroke.server.telemetry.metrics import CONTENT_TYPE

Make = Callable[[Request], Awaitable[Response]]


@body_kind
class NamedModel(msgspec.Struct, kw_only=True):
    """The body of /models/load and /models/unload."""

    model: str


def list_routes(models: Models) -> list[Route]:
    """Returns the routes GET /v1/models, /api/tags, /api/ps, /models, its events, /health, /ready, /live, /metrics;
    POST /models/load."""
    told = ModelLists(models)
    return [
        Route("/v1/models", told.page, methods=["GET"]),
        Route("/v1/models/{name:path}", told.one, methods=["GET"]),
        Route("/models", told.page, methods=["GET"]),
        Route("/models/sse", told.events, methods=["GET"]),
        Route("/models/load", told.load, methods=["POST"]),
        Route("/models/unload", told.unload, methods=["POST"]),
        Route("/api/tags", told.tags, methods=["GET", "HEAD"]),
        Route("/api/ps", told.running, methods=["GET", "HEAD"]),
        Route("/health", told.ready, methods=["GET"]),
        Route("/ready", told.ready, methods=["GET"]),
        Route("/live", told.live, methods=["GET"]),
        Route("/metrics", told.metrics, methods=["GET"]),
        Route("/v1/requests/{name:path}/explain", told.explain, methods=["GET"]),
    ]


class ModelLists:
    """The endpoints that list a server's models and their states, load and unload them. Only `load` loads a model."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def objects(self) -> list[dict[str, Any]]:
        """Returns one object for each name that lists show, with the state of its process."""
        return [each for group in self._models.groups.values() for each in self._objects_of(group)]

    def _objects_of(self, group: ModelGroup) -> list[dict[str, Any]]:
        status = self._status(group)
        if group.parts is None:
            bare = {"object": "model", "created": 0, "owned_by": "twostroke", "type": "model"}
            return [{"id": name, **bare, "display_name": name, "status": status} for name in group.source.shown]
        shown = (*group.source.shown, *group.parts.serving.adapters.names())
        found = [each for each in model_list(group.parts.serving)["data"] if each["id"] in shown]
        task, size = group.parts.serving.task, group.plan().need_bytes
        return [{**each, "task": task, "size": size, "status": status} for each in found]

    def _status(self, group: ModelGroup) -> dict[str, Any]:
        state = self._models.state(group)
        status: dict[str, Any] = {"value": state}
        if state is ModelState.LOADING:
            status["progress"] = round(group.loaded_share, 3)
        if state is ModelState.FAILED or group.problem:
            status |= {"value": ModelState.FAILED, "failed": True, "reason": self._models.why(group)}
        return status

    async def page(self, _request: Request) -> Response:
        """Returns all models."""
        found = self.objects()
        ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]}
        pulls = {"pulls": self._models.pulls is not None}  # the page offers to fetch other models
        return _json({"object": "list", "data": found, "has_more": False, **ends, **pulls})

    async def events(self, _request: Request) -> Response:
        """Returns the changes of each model's state from now on, as events."""
        events = model_events(self._models)
        return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})

    async def one(self, request: Request) -> Response:
        """Returns one model by any of its names. Raises HttpProblem (404)."""
        name = request.path_params["name"]
        found = self._objects_of(self._named(name))
        return _json(next((each for each in found if each["id"] == name), found[0]))

    def _named(self, name: str) -> ModelGroup:
        group = self._models.find(name)
        if group is None:
            raise HttpProblem(unknown_among(name, self._models.names()))
        return group

    async def load(self, request: Request) -> Response:
        """Load a model; the answer comes when it is ready. Raises HttpProblem (404), ModelUnavailable."""
        await self._models.load(await self._of_body(request))
        return _json({"success": True})

    async def unload(self, request: Request) -> Response:
        """Let a model leave when no request runs in it. Raises HttpProblem (404)."""
        self._models.unload(await self._of_body(request))
        return _json({"success": True})

    async def _of_body(self, request: Request) -> ModelGroup:
        async with reading(request, self._models.shared.admission) as body:
            return self._named(decode(body, NamedModel).model)

    async def tags(self, _request: Request) -> Response:
        """Returns Ollama's list of all models."""
        return _json({"models": [each for group in self._models.groups.values() for each in self._tags_of(group)]})

    def _tags_of(self, group: ModelGroup) -> list[dict[str, Any]]:
        if group.parts is None:
            return [ollama.bare(name) for name in group.source.shown]
        shown = {shown_name(name) for name in (*group.source.shown, *group.parts.serving.adapters.names())}
        return [each for each in ollama.tags(group.parts.serving)["models"] if each["name"] in shown]

    async def running(self, _request: Request) -> Response:
        """Returns Ollama's list of the loaded models; those that stay longest come first."""
        found = [(self._left_s(group), group) for group in self._models.groups.values() if self._is_loaded(group)]
        found.sort(key=lambda each: -each[0])
        return _json({"models": [self._running(group, left_s) for left_s, group in found]})

    def _is_loaded(self, group: ModelGroup) -> bool:
        return self._models.state(group) in (ModelState.READY, ModelState.LOADING) and group.parts is not None

    def _left_s(self, group: ModelGroup) -> float:
        """Returns how many seconds the model stays if no request comes."""
        model, now = self._models.loading[group.name], self._models.clock()
        return model.keep_s if model.requests else max(0.0, model.leaves_at_s - now)

    def _running(self, group: ModelGroup, left_s: float) -> dict[str, Any]:
        parts, wall = group.parts, self._models.shared.serving.wall_clock()
        if parts is None:
            return {}
        until = ollama.FOREVER if math.isinf(left_s) else stamp(wall + left_s)
        first = self._tags_of(group)[0]
        size = {"size": group.plan().need_bytes, "size_vram": 0}
        return {**first, **size, "expires_at": until, "context_length": parts.serving.context_tokens}

    async def ready(self, _request: Request) -> Response:
        """Returns 200 while requests are taken, with the state of each model."""
        states = {group.name: self._status(group)["value"] for group in self._models.groups.values()}
        if not self._models.alive:
            return _json({"status": "stopped", "models": states}, 503)
        draining = self._models.shared.admission.door.draining
        return _json({"status": "draining" if draining else "ok", "models": states}, 503 if draining else 200)

    async def live(self, _request: Request) -> Response:
        """Returns 200 while the server runs."""
        return _json({"status": "ok"}) if self._models.alive else _json({"status": "stopped"}, 503)

    async def metrics(self, _request: Request) -> Response:
        """Returns the metrics of all models, each with its name as a label."""
        return Response(all_metrics(self._models), headers={"content-type": CONTENT_TYPE})

    async def explain(self, request: Request) -> Response:
        """Returns how the time of a request was spent, whichever model it used. Raises HttpProblem (404)."""
        asked = request.path_params["name"]
        for group in self._models.groups.values():
            if group.parts is not None:
                answer = await asyncio.to_thread(explanation_of, asked, group.parts.telemetry.explain)
                if answer is not None:
                    return _json(answer)
        raise HttpProblem(unknown_request(asked))


def _json(value: object, status: int = 200) -> Response:
    return Response(line_json(value), status, media_type="application/json")
