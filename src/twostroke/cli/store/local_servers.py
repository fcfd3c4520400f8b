"""Finds the servers of this user on this machine: those that run, and those that have a given model."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from twostroke.cli.shared.server_records import SERVERS, ServerRecord, running_servers
from twostroke.types.user_path import is_there, user_path

_LATEST = ":latest"


def local_servers() -> list[ServerRecord]:
    """Returns the running servers, in the order in which they began."""
    from twostroke.assembly.settings.env import read_machine

    return running_servers(read_machine().cache_folder / SERVERS)


def having(servers: Sequence[ServerRecord], model: str) -> list[ServerRecord]:
    """The servers that were started with this model, or serve it under this name."""
    return [each for each in servers if _name_in(each, model)]


def name_there(server: ServerRecord, model: str) -> str:
    """How requests to this server name the model."""
    return _name_in(server, model) or server.names[0]


def _name_in(server: ServerRecord, model: str) -> str:
    """Returns the server's name for the model: one that is spelled so, or else one that means the same. Returns "" for
    a server without it."""
    names = _spellings(model)
    spelled = next((name for name in server.names if _plain(name) in names), "")
    if spelled or not server.names:
        return spelled
    wanted = _meaning(model)
    if server.model:
        return server.names[0] if _meaning(server.model) == wanted else ""
    return next((name for name in server.names if _meaning(name) == wanted), "")


def _spellings(model: str) -> set[str]:
    """What a server may call this model: the name that was given here, and what an alias of this user means."""
    from twostroke.assembly.settings.names import meant

    return {_plain(model), _plain(meant(model)), _meaning(model).lower()}


def _plain(name: str) -> str:
    return name.lower().removesuffix(_LATEST)


def _meaning(model: str) -> str:
    """Returns one text for all ways to name a model: the path of a folder or file, or the reference in full."""
    from twostroke.assembly.settings.names import meant
    from twostroke.weights.hub.reference import reference_of

    name = meant(model)
    with contextlib.suppress(OSError):
        if is_there(name):
            return str(user_path(name).resolve())
    reference = reference_of(name)
    return name if reference is None else reference.text.lower()
