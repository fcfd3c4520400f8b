"""The page at `/`: plain files of the package, read once and sent unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).with_name("page")
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


def page_files() -> dict[str, tuple[str, bytes]]:
    """Returns a map of URL path -> (content type, bytes) with the files of the page. Anyone may get these files; the
    page requests its data with the API key."""
    found = {}
    for each in FOLDER.rglob("*"):
        kind = KINDS.get(each.suffix)
        if kind is not None:
            path = each.relative_to(FOLDER).as_posix()
            found["/" if path == "index.html" else f"/page/{path}"] = (kind, each.read_bytes())
    return found


def page_routes() -> list[Route]:
    """Returns one route for each file of the page. A route sends bytes that are already in memory, so a path in a
    request cannot open a file of the disk."""
    return [Route(path, _sender(*file), methods=["GET"]) for path, file in page_files().items()]


def _sender(kind: str, body: bytes) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {**HEADERS, "etag": tag}

    async def endpoint(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers={**headers, "content-type": kind})

    return endpoint
