"""Unloads one model of a server with several models. The server and its other models go on."""

from __future__ import annotations

import json
import time
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

from twostroke.cli.server.running_server import RunningServer
from twostroke.cli.shared.server_records import ServerRecord
from twostroke.cli.store.local_servers import name_there
from twostroke.types.errors import ConfigError, EngineStopped

ASK_S, LOOK_EVERY_S = 5.0, 0.1
GONE = (None, "unloaded", "failed")


def models_of(record: ServerRecord) -> list[str]:
    """Returns the models of a server that has several. Returns an empty list for any other server, and where the server
    does not answer."""
    try:
        with RunningServer(record.url, None, ASK_S).open("/health") as answer:
            found = json.load(answer).get("models", {})
        return list(found) if len(found) > 1 else []
    except (ConfigError, HTTPError, HTTPException, OSError, ValueError, AttributeError, TypeError):
        return []


def unload(record: ServerRecord, model: str, api_key: str | None, wait_s: float) -> dict[str, Any]:
    """Unloads the model after its last answer, waits until it is unloaded, and returns facts about it. Raises
    ConfigError, and EngineStopped where this takes longer than `wait_s`."""
    asked, server = name_there(record, model), RunningServer(record.url, api_key, ASK_S)
    name = str(_asked(server, f"/v1/engine/about?model={quote(asked, safe='')}")["model"])
    _asked(server, "/models/unload", json.dumps({"model": name}).encode())
    end_s = time.monotonic() + wait_s
    while _asked(server, "/health")["models"].get(name) not in GONE:
        if time.monotonic() > end_s:
            raise EngineStopped(
                f"{name} is still loaded at {record.url} after {wait_s:g} s.",
                why="Answers that run are finished first, and new requests for it keep it.",
                fix="Wait; the model is unloaded after its last answer.",
            )
        time.sleep(LOOK_EVERY_S)
    return {"model": name, "url": record.url, "pid": record.pid}


def _asked(server: RunningServer, path: str, body: bytes | None = None) -> Any:
    try:
        with server.open(path, body) as answer:
            return json.load(answer)
    except HTTPError as error:
        if error.code == 401:
            raise ConfigError(
                "The server wants an API key.", why="It was started with one.", fix="Give it with --api-key."
            ) from None
        raise ConfigError(f"The server at {server.url} answers {error.code}.", fix="See its log.") from None
    except (OSError, HTTPException, ValueError) as error:
        raise ConfigError(f"The server at {server.url} broke off its answer.", why=f"{error}.") from None
