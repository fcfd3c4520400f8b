"""The app of a server: all routes, and the layers around them. `create_app(parts)` gives an ASGI app; it starts and
stops nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from twostroke.server.api.routes import routes_of
from twostroke.server.boundary import Boundary
from twostroke.server.errors import INVALID, HttpProblem, Problem, problem_of
from twostroke.server.gate.door_metrics import DoorCollector
from twostroke.server.gate.one_path import OnePath, api_paths, nothing_at
from twostroke.server.gate.origins import Origins
from twostroke.server.gate.security import Gate
from twostroke.server.live.about import kv_facts
from twostroke.server.live.routes import live_routes
from twostroke.server.page_files import page_routes
from twostroke.server.parts import ServerParts
from twostroke.server.stored.inner import MayRun, at_any_time
from twostroke.server.telemetry.history_metrics import HistoryCollector
from twostroke.types.errors import BackendError, TwostrokeError

log = logging.getLogger(__name__)


def create_app(parts: ServerParts) -> ASGIApp:
    """Returns the app with its layers around it, from the inside out: Gate (Host, Origin, key), OnePath (one form of
    each path), Boundary (request id, last safety net), Origins (CORS).

    Call once for a ServerParts: it adds the engine's gauges to the metrics registry.
    """
    admission = parts.admission
    parts.telemetry.metrics.registry.register(DoorCollector(admission.door, admission.bodies))
    app = open_app(parts)
    attach_stored(app, parts)
    return guarded(app, parts)


def attach_stored(app: ASGIApp, parts: ServerParts, may_run: MayRun = at_any_time) -> None:
    """Lets stored batches and background responses send their requests to `app`, which does not check API keys.
    may_run: see StoredWork.attach."""
    serving, door = parts.serving, parts.admission.door
    if serving.stored is not None:
        serving.stored.attach(app, lambda: door.draining or not serving.engine.alive, may_run)


def open_app(parts: ServerParts) -> Starlette:
    """Returns all routes of one model, without the check of API keys. Call once for a ServerParts, like create_app."""
    serving, metrics = parts.serving, parts.telemetry.metrics
    metrics.attach(serving.engine.gauges, parts.telemetry.work, serving.adapters.shelf)
    metrics.registry.register(HistoryCollector(serving.view.ledger, metrics.recent))
    metrics.alias(serving.served_name, kv_facts(serving.view.about))
    return routed([*routes_of(parts), *live_routes(parts), *page_routes()])


def routed(routes: Sequence[Route]) -> Starlette:
    """Returns an app of these routes, with errors in the form of each API."""
    app = Starlette(
        routes=routes,
        exception_handlers={
            TwostrokeError: _on_error,
            HttpProblem: _on_error,
            HTTPException: _on_http_exception,
            ClientDisconnect: _on_error,
            Exception: _on_error,
        },
    )
    app.router.redirect_slashes = False
    return app


def guarded(app: ASGIApp, parts: ServerParts) -> ASGIApp:
    """Returns the app inside the layers that `create_app` lists, which check each request and make its errors."""
    access, serving, telemetry = parts.access, parts.serving, parts.telemetry
    gate = OnePath(Gate(app, access.api_key, access.loopback_only, access.reach), access.reach.root_path)
    boundary = Boundary(gate, telemetry.metrics, serving.new_id, telemetry.listeners, serving.wall_clock)
    return Origins(boundary, access.reach)


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, BackendError):  # such as TokenizerFailed; the answer does not name the cause
        log.error("a request failed: %s", error)
    return problem_of(error).response(request.scope["path"])


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Returns 404 for an unknown path, 405 with Allow for a wrong method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    path, not_allowed = request.scope["path"], f"{request.method} is not allowed at this path."
    messages = {404: nothing_at(path, api_paths(request.app.routes)), 405: not_allowed}
    codes = {404: "not_found", 405: "method_not_allowed"}
    message = messages.get(status, "The request was refused.")
    return Problem(status, message, INVALID, code=codes.get(status), headers=headers).response(path)
