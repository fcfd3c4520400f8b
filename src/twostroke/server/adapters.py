"""Adapters over HTTP: the names that requests may ask for, loading and unloading (the routes of vLLM).

Clients load only from the folder that was given when the server was started. Without this folder they load nothing.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from twostroke.distributed.fleet.fixed_adapters import FixedAdapters
from twostroke.runner.adapters.shelf import AdapterShelf
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.decode import body_kind
from twostroke.types.errors import ConfigError, InvalidRequest

NOT_ALLOWED = Problem(
    404,
    "Clients may not change the adapters of this server: it was started without --adapter-folder.",
    code="adapters_fixed",
)


@body_kind
class LoadRequest(msgspec.Struct, kw_only=True):
    """lora_path: a folder in the server's folder of adapters. load_inplace: True to replace an adapter of the same
    name."""

    lora_name: str
    lora_path: str
    load_inplace: bool | None = None


@body_kind
class UnloadRequest(msgspec.Struct, kw_only=True):
    """lora_int_id: vLLM's number of the adapter; it is accepted and ignored."""

    lora_name: str
    lora_int_id: int | None = None


class ServedAdapters(Struct, frozen=True):
    """The LoRA adapters that requests may ask for. shelf: the engine's adapters; FixedAdapters where other processes
    hold them; None where none can be served. folder: the folder from which clients may load adapters; None when they
    may not load."""

    shelf: AdapterShelf | FixedAdapters | None = None
    folder: Path | None = None

    def names(self) -> tuple[str, ...]:
        """Returns the names that `model` may have in addition to the model's own name."""
        return () if self.shelf is None else tuple(each.name for each in self.shelf.loaded())

    def load(self, request: LoadRequest) -> str:
        """Load an adapter and return a sentence for the client. Raises HttpProblem when loading is not allowed,
        InvalidRequest when the adapter cannot be loaded."""
        shelf, folder = self._allowed()
        if not request.lora_name or len(request.lora_name) > 200 or not request.lora_name.isprintable():
            raise InvalidRequest("lora_name must have 1 to 200 printable characters.", param="lora_name")
        try:
            path = (folder / request.lora_path).resolve()
            inside = path.is_relative_to(folder.resolve())
        except (OSError, ValueError, RuntimeError) as error:
            raise InvalidRequest("lora_path is no path.", param="lora_path", why=f"{error}."[:200]) from None
        if not inside:
            raise InvalidRequest(
                "lora_path lies outside the server's folder of adapters.",
                param="lora_path",
                fix="Give the name of a folder in it.",
            )
        try:
            shelf.load(request.lora_name, path, again=bool(request.load_inplace))
        except ConfigError as error:
            raise InvalidRequest(error.what, param="lora_path", why=error.why, fix=error.fix) from None
        return f"Success: LoRA adapter '{request.lora_name}' added successfully."

    def unload(self, request: UnloadRequest) -> str:
        """Unload an adapter and return a sentence for the client. Raises HttpProblem (404) when this is not allowed, or
        the adapter is not loaded."""
        shelf, _ = self._allowed()
        try:
            shelf.unload(request.lora_name)
        except InvalidRequest as error:
            raise HttpProblem(Problem(404, error.what, param="lora_name", code="adapter_not_found")) from None
        return f"Success: LoRA adapter '{request.lora_name}' removed successfully."

    def _allowed(self) -> tuple[AdapterShelf, Path]:
        if not isinstance(self.shelf, AdapterShelf) or self.folder is None:
            raise HttpProblem(NOT_ALLOWED)
        return self.shelf, self.folder
