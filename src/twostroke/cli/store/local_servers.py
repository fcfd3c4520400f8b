"""Finds the servers of this user that have a given model."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twostroke.cli.shared.server_records import ServerRecord
from twostroke.types.errors import TwostrokeError
from twostroke.types.reading.user_path import is_there, user_path

if TYPE_CHECKING:
    from twostroke.weights.hub.reference import Reference

_LATEST = ":latest"


def having(servers: Sequence[ServerRecord], model: str) -> list[ServerRecord]:
    """Returns the servers that were started with this model, or serve it under this name."""
    return [each for each in servers if _name_in(each, model)]


def name_there(server: ServerRecord, model: str) -> str:
    """Returns the name by which requests to this server call the model."""
    return _name_in(server, model) or server.names[0]


def _name_in(server: ServerRecord, model: str) -> str:
    """Returns the server's name for the model: a name with the same spelling, or else a name of the same path or of the
    same repository and quantization. Returns "" for a server without the model."""
    names = _spellings(model)
    spelled = next((name for name in server.names if _plain(name) in names), "")
    if spelled or not server.names:
        return spelled
    for same in (_same_meaning, _same_file):
        if server.model:
            found = server.names[0] if same(server.model, model) else ""
        else:
            found = next((name for name in server.names if same(name, model)), "")
        if found:
            return found
    return ""


def _same_meaning(one: str, other: str) -> bool:
    return _meaning(one) == _meaning(other)


def _same_file(served: str, asked: str) -> bool:
    """Returns whether a served model and the asked model are of the same repository and quantization. An asked name
    without a file or quantization matches every one."""
    one, other = _reference(served), _reference(asked)
    if one is None or other is None or one.repo_id.lower() != other.repo_id.lower():
        return False
    if other.revision not in (None, one.revision) and _commit(served) != _commit(asked):
        return False
    return other.wanted is None or _is_quant(_quant(served, one), _quant(asked, other))


def _reference(model: str) -> Reference | None:
    from twostroke.assembly.settings.names import meant
    from twostroke.weights.hub.reference import reference_of

    name = meant(model)
    return None if is_there(name) else reference_of(name)


def _is_quant(served: str, asked: str) -> bool:
    from twostroke.weights.gguf.file_names import near_quants

    return served != "" and served in (asked, *near_quants(asked))


def _commit(model: str) -> str:
    """Returns the commit of the snapshot on this machine that a name means; the name itself where there is none."""
    from twostroke.cli.store.facts import found_here

    with contextlib.suppress(TwostrokeError):
        return found_here(model).revision or model
    return model


def _quant(model: str, reference: Reference) -> str:
    """Returns the quantization of a model of a hub, from its name or from its file on this machine; "" where neither
    tells."""
    from twostroke.cli.store.facts import found_here
    from twostroke.weights.gguf.file_names import quant_of

    if reference.wanted is not None:
        return quant_of(reference.wanted)
    with contextlib.suppress(TwostrokeError):
        path = found_here(model).path
        return quant_of(path.name) if path.is_file() else ""
    return ""


def _spellings(model: str) -> set[str]:
    """Returns the names that a server may have for this model: the name that was given here, the meaning of an alias of
    this user, and the full path or reference."""
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
