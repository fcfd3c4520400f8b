"""Gives each request to the routes of the model that it names."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from twostroke.server.answering.routes import answering_tasks
from twostroke.server.api.ollama.names import not_here
from twostroke.server.app import routed
from twostroke.server.attached.routes import text_routes
from twostroke.server.attached.tool_routes import tool_routes
from twostroke.server.errors import OLLAMA_PATH, HttpProblem, problem_of, unknown_among
from twostroke.server.gate.body import reading
from twostroke.server.several.asked import AskedModel, asked_of
from twostroke.server.several.group import ModelGroup
from twostroke.server.several.lists import list_routes
from twostroke.server.several.models import Models
from twostroke.server.several.ollama_pull import ollama_pull_routes
from twostroke.server.several.pull_routes import pull_routes
from twostroke.server.stored.chat_routes import chat_routes
from twostroke.server.stored.routes import stored_routes
from twostroke.types.errors import TwostrokeError

LOADING_PATHS = ("/api/chat", "/api/generate", "/api/embed", "/api/embeddings")


class ModelSwitch:
    """An ASGI app. It answers the routes about all models and stored work itself; a model answers every other route.

    The body's field `model`, or `?model=` in the URL, names the model. When neither is there, the first model for the
    route's task answers.
    """

    def __init__(self, models: Models) -> None:
        self._models = models
        shared = models.shared
        admission, serving = shared.admission, shared.serving
        kept = [*stored_routes(admission, serving.stored), *chat_routes(admission, serving.chats)]
        pulls = [*pull_routes(models), *ollama_pull_routes(models)]
        page = [*text_routes(admission), *tool_routes(admission, serving.tool_servers)]
        self._own = routed([*list_routes(models), *pulls, *kept, *page])
        self._tasks = answering_tasks()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with errors in the form of the path's API."""
        if scope["type"] != "http" or any(route.matches(scope)[0] is Match.FULL for route in self._own.routes):
            await self._own(scope, receive, send)
            return
        try:
            await self._give(scope, receive, send)
        except (HttpProblem, TwostrokeError) as error:  # raised before a route began, so nothing was sent
            await problem_of(error).response(scope["path"])(scope, receive, send)

    async def _give(self, scope: Scope, receive: Receive, send: Send) -> None:
        admission, asked, body = self._models.shared.admission, AskedModel(), b""
        if scope["method"] == "POST":
            async with reading(Request(scope, receive), admission) as body:
                asked = await admission.lanes.run(len(body), asked_of, body)
            receive = _again(body, receive)
        del body
        group, keep_s = self._meant(asked, scope), asked.keep_s
        await self._models.built(group)
        app = group.app
        if app is None:
            return
        if asked.is_bare and scope["path"] in LOADING_PATHS and keep_s != 0:
            await self._models.load(group)
        try:
            await app(scope, receive, send)
        finally:
            if keep_s is not None:
                self._models.keep(group, keep_s)

    def _meant(self, asked: AskedModel, scope: Scope) -> ModelGroup:
        """Returns the model that a request means. Raises HttpProblem (404) for an unknown name."""
        name = asked.asked or parse_qs(scope["query_string"].decode("latin-1")).get("model", [""])[0]
        path = scope["path"]
        if not name:
            return self._models.first(self._tasks.get(path))
        group = self._models.find(name)
        if group is None and path.startswith(OLLAMA_PATH):
            raise HttpProblem(not_here(name))
        if group is None:
            raise HttpProblem(unknown_among(name, self._models.names()))
        return group


def _again(body: bytes, receive: Receive) -> Receive:
    """Returns a receive function. Its first call gives the body, which was read already; later calls give what
    `receive` gives."""
    held: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return held.pop() if held else await receive()

    return received
