"""Passes messages from the web page to servers of tools (MCP over streamable HTTP), and their answers back.

Only the addresses of --mcp are called. Of a client's request only the message, the session id and the protocol version
are passed on. No redirect is followed.
"""

from __future__ import annotations

import re
import ssl
import time
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from twostroke.server.errors import HttpProblem, Problem
from twostroke.types.reading.decoders import json_decoder

METHODS = frozenset({"initialize", "notifications/initialized", "tools/list", "tools/call", "ping"})
"""The methods of MCP that the web page needs. Messages with other methods are refused."""
LIMIT_S, MOST_BYTES, MOST_LINE = 120.0, 4 << 20, 4 << 20
SESSION, VERSION = "mcp-session-id", "mcp-protocol-version"
GONE = 404
_SESSION = re.compile(r"[\x21-\x7e]{1,256}")
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}")
_OBJECT = json_decoder(dict[str, Any])


class ToolServer(Struct, frozen=True):
    """A server of tools that --mcp names. name: the name by which the web page addresses it. url: its http or https
    address."""

    name: str
    url: str


class Passed(Struct, frozen=True):
    """A message that is passed on to a server of tools. message: the JSON-RPC message. session, version: the session id
    and the protocol version that the server gave when the session began; "" before that."""

    message: dict[str, Any]
    session: str = ""
    version: str = ""


class Came(Struct, frozen=True):
    """An answer of a server of tools. message: the JSON-RPC answer; None when the message has no id, so that no answer
    is expected. session: the server's id of the session."""

    message: dict[str, Any] | None
    session: str = ""


def check(passed: Passed) -> None:
    """Raises HttpProblem (400) when a message must not be passed on to a tool server (MCP), because of its method, its
    session or its version."""
    message = passed.message
    if message.get("jsonrpc") != "2.0" or message.get("method") not in METHODS:
        raise HttpProblem(Problem(400, f"message.method must be one of {', '.join(sorted(METHODS))}.", param="message"))
    if passed.session and not _SESSION.fullmatch(passed.session):
        raise HttpProblem(Problem(400, "session is not a valid session id of a tool server.", param="session"))
    if passed.version and not _VERSION.fullmatch(passed.version):
        raise HttpProblem(Problem(400, "version must be a date such as 2025-06-18.", param="version"))


def ask(server: ToolServer, passed: Passed, limit_s: float = LIMIT_S) -> Came:
    """Sends a message and returns the answer; blocks until the answer is here. Raises HttpProblem: 404 when the session
    is over, 502 when the server fails. limit_s: the longest time, in seconds."""
    end_s = time.monotonic() + limit_s
    connection = _connection(server, limit_s)
    try:
        parts = urlsplit(server.url)
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        connection.request("POST", path, msgspec.json.encode(passed.message), _headers(passed))
        answer = connection.getresponse()
        if answer.status == GONE and passed.session:
            raise HttpProblem(Problem(404, f"{server.name} has ended this session.", code="mcp_session_over"))
        if answer.status not in (200, 202, 204):
            raise _broken(server, f"It answers with status {answer.status}")
        session = answer.headers.get(SESSION) or passed.session
        wanted = passed.message.get("id")
        return Came(None if wanted is None else _message(server, answer, wanted, end_s), session)
    except (OSError, HTTPException) as error:
        raise _broken(server, str(error) or type(error).__name__) from None
    finally:
        connection.close()


def _connection(server: ToolServer, limit_s: float) -> HTTPConnection:
    parts = urlsplit(server.url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        return HTTPSConnection(host, parts.port, timeout=limit_s, context=ssl.create_default_context())
    return HTTPConnection(host, parts.port, timeout=limit_s)


def _headers(passed: Passed) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if passed.session:
        headers[SESSION] = passed.session
    if passed.version:
        headers[VERSION] = passed.version
    return headers


def _message(server: ToolServer, answer: HTTPResponse, wanted: Any, end_s: float) -> dict[str, Any]:
    """Returns the answer whose id is `wanted`: the response's body, or one of the events in it. Raises HttpProblem
    (502). end_s: the time at which reading stops."""
    if not answer.headers.get_content_type() == "text/event-stream":
        found = _read(answer.read(MOST_BYTES + 1))
        if found is None or found.get("id") != wanted:
            raise _broken(server, "Its answer is no answer of MCP")
        return found
    left, data = MOST_BYTES, b""
    while left > 0 and time.monotonic() < end_s:
        line = answer.readline(MOST_LINE)
        left -= len(line)
        if line.startswith(b"data:"):
            data += line[5:].strip() + b"\n"
        elif not line.strip():
            found = _read(data) if data else None
            if found is not None and found.get("id") == wanted and ("result" in found or "error" in found):
                return found
            data = b""
        if not line:
            break
    raise _broken(server, "Its answer ends too early, is too long or takes too long")


def _read(data: bytes) -> dict[str, Any] | None:
    try:
        return None if len(data) > MOST_BYTES else _OBJECT.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _broken(server: ToolServer, why: str) -> HttpProblem:
    text = f"The server of tools {server.name!r} cannot be asked. {why}."
    return HttpProblem(Problem(502, text, "api_error", code="mcp_unreachable"))
