"""A server of tools for tests: MCP over streamable HTTP. It answers as JSON or as events."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOLS = [
    {
        "name": "weather",
        "description": "The weather of a city.",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
    {"name": "clock", "inputSchema": {"type": "object"}},
]


@dataclass
class Tools:
    """What the server does, and the requests that it got. form: json, or events. reply: sent in place of the answer,
    when set."""

    url: str = ""
    form: str = "json"
    reply: tuple[int, dict[str, str], bytes] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    sessions: int = 0

    def answer(self, message: dict[str, Any], session: str) -> dict[str, Any] | None:
        """The result of a message; None where its session is over."""
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            self.sessions += 1
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "t"}}
        if session != f"s{self.sessions}":
            return None
        if method == "tools/list":  # one tool on each page
            at = int(params.get("cursor", 0))
            more = {"nextCursor": str(at + 1)} if at + 1 < len(TOOLS) else {}
            return {"tools": [TOOLS[at]], **more}
        if method == "tools/call":
            city = params["arguments"].get("city")
            text = f"dry in {city}" if city else "no city"
            return {"content": [{"type": "text", "text": text}], "isError": not city}
        return {}


@contextmanager
def tools() -> Iterator[Tools]:
    """A server of tools that runs until the end of the block."""
    made = Tools()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            made.asked.append(message)
            made.headers.append({name.lower(): value for name, value in self.headers.items()})
            if made.reply is not None:
                self.send(*made.reply)
                return
            result = made.answer(message, self.headers.get("mcp-session-id", ""))
            if result is None:
                self.send(404, {}, b"")
            elif "id" not in message:
                self.send(202, {}, b"")
            else:
                self.result(message, result)

        def result(self, message: dict[str, Any], result: dict[str, Any]) -> None:
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            kind, session = "application/json", {"mcp-session-id": f"s{made.sessions}"}
            if made.form == "events":
                note = b'data: {"jsonrpc": "2.0", "method": "notifications/message"}\n\n'
                body, kind = note + b": x\n\nevent: message\ndata: " + body + b"\n\n", "text/event-stream"
            self.send(200, {"content-type": kind, **session}, body)

        def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Logs nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}/mcp?x=1"
        thread = threading.Thread(target=server.serve_forever, name="tools")
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
