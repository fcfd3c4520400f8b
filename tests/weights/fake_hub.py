"""A hub on 127.0.0.1 with as much of the API as a snapshot download uses. It breaks on request."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub.utils import _http

from twostroke.weights.hub import retries


@dataclass
class Repo:
    """commits: hash -> file name -> bytes. refs: branch or tag -> hash."""

    commits: dict[str, dict[str, bytes]]
    refs: dict[str, str]
    gated: bool = False
    card: dict[str, Any] = field(default_factory=dict)
    token: str = ""
    """A client that sends it may have the files of a gated repository."""


@dataclass
class FakeHub:
    """The state of the server: its repositories, its requests, and what it breaks."""

    repos: dict[str, Repo]
    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    authorizations: set[str | None] = field(default_factory=set)
    cut_after_bytes: dict[str, int] = field(default_factory=dict)
    """File name -> bytes of its body after which the connection is cut, as long as `cuts_left`."""
    cuts_left: int = 1 << 30
    refuse_after_cuts: bool = False
    """When no cuts are left, whether to send nothing at all of those files."""
    ignores_ranges: bool = False
    announced_bytes: dict[str, int] = field(default_factory=dict)
    """File name -> a length that HEAD claims."""
    broken: bool = False
    stops_at: dict[str, tuple[int, Callable[[str], None]]] = field(default_factory=dict)
    """File name -> bytes of a whole body, and the function that is called once so many were sent. Nothing is sent after
    them."""
    waits_s: list[float] = field(default_factory=list)
    mends_after_waits: int = 0
    """The number of waits of clients after which `broken` ends; 0 for never."""

    def waited(self, seconds: float) -> None:
        """Is called in place of a client's wait."""
        self.waits_s.append(seconds)
        if len(self.waits_s) == self.mends_after_waits:
            self.broken = False


@contextmanager
def serve(repos: dict[str, Repo]) -> Iterator[FakeHub]:
    """Runs a FakeHub on an ephemeral port. Where a client would wait before it asks again, it asks at once."""
    hub = FakeHub(repos)

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for client in (_http, retries):
                patch.setattr(client, "time", SimpleNamespace(**{**vars(time), "sleep": hub.waited}))
            yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.state.requests.append((self.command, path))
        self.state.authorizations.add(self.headers.get("authorization"))
        if self.state.broken:
            return self._send(500, b"{}")
        if path.startswith("/api/models/"):
            publisher, model, *rest = path.removeprefix("/api/models/").split("/")
            return self._api(f"{publisher}/{model}", rest)
        if path.count("/") < 5:
            return self._send(404, b"{}")
        publisher, model, resolve, revision, *file = path.strip("/").split("/")
        repo, commit = self._find(f"{publisher}/{model}", revision)
        if repo is not None and commit is not None and resolve == "resolve":
            self._file(repo, commit, "/".join(file))

    def _find(self, repo_id: str, revision: str) -> tuple[Repo | None, str | None]:
        repo = self.state.repos.get(repo_id)
        if repo is None:
            self._send(401, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
            return None, None
        commit = repo.refs.get(revision, revision)
        if commit not in repo.commits:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            return repo, None
        return repo, commit

    def _api(self, repo_id: str, rest: list[str]) -> None:
        kind, revision = (rest[0], "/".join(rest[1:])) if rest else ("revision", "main")
        repo, commit = self._find(repo_id, revision)
        if repo is None or commit is None:
            return
        files = repo.commits[commit]
        if kind == "revision":
            siblings = [_sibling(name, content) for name, content in files.items()]
            repo_facts = {"gated": "manual" if repo.gated else False, "cardData": repo.card}
            answer: Any = {**repo_facts, "_id": "1", "id": repo_id, "modelId": repo_id, "sha": commit,
                           "siblings": siblings, "private": False, "tags": [], "downloads": 0, "likes": 0}  # fmt: skip
        else:
            answer = [{"type": "file", "path": name, "size": len(content), "oid": _etag(content)}
                      for name, content in files.items()]  # fmt: skip
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _file(self, repo: Repo, commit: str, name: str) -> None:
        if repo.gated and (not repo.token or self.headers.get("authorization") != f"Bearer {repo.token}"):
            return self._send(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        content = repo.commits[commit].get(name)
        if content is None:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        headers = {
            "ETag": f'"{_etag(content)}"',
            "Connection": "close",
            "X-Repo-Commit": commit,
            "Accept-Ranges": "bytes",
        }
        wanted = self.headers.get("Range")
        status = 200
        if self.command == "HEAD" and name in self.state.announced_bytes:
            content = content[: self.state.announced_bytes[name]]
        if wanted and not self.state.ignores_ranges and self.command == "GET":
            self.state.ranges.append(f"{name} {wanted}")
            first = int(wanted.removeprefix("bytes=").partition("-")[0])
            last = wanted.rpartition("-")[2]
            end = min(len(content), int(last) + 1) if last else len(content)
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
            content, status = content[first:end], 206
        self._send(status, content, headers, self._cut(name))

    def _cut(self, name: str) -> int | None:
        if self.command == "GET" and name in self.state.stops_at and "Range" not in self.headers:
            return self.state.stops_at[name][0]
        if self.command != "GET" or name not in self.state.cut_after_bytes:
            return None
        if self.state.cuts_left:
            self.state.cuts_left -= 1
            return self.state.cut_after_bytes[name]
        return 0 if self.state.refuse_after_cuts else None

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, cut: int | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:cut])
            if cut is not None:
                self.wfile.flush()
                for name, (_, then) in self.state.stops_at.items():
                    then(name)
                self.close_connection = True
                self.connection.close()


def _sibling(name: str, content: bytes) -> dict[str, Any]:
    lfs = {"size": len(content), "sha256": _etag(content), "pointerSize": 134}
    return {"rfilename": name, "size": len(content), "blobId": _etag(content)[:40], "lfs": lfs}


def _etag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
