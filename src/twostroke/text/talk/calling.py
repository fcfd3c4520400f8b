"""Receives one tool call while it is read. A Notation reads the model's text, and reports the call's name and arguments
to a Calling."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from twostroke.text.talk.pieces import CallArguments, CallBegan, Piece

NO_ARGUMENTS = "{}"
_NAMESPACE = "functions."


class Tools:
    """The tools that the request lets the model call. names: the names of the tools, or a map of name -> JSON schema of
    the tool's arguments. The schemas give the types of arguments that a model writes as plain text."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._schemas: Mapping[str, Any] = names if isinstance(names, Mapping) else dict.fromkeys(names)

    def __bool__(self) -> bool:
        return bool(self._schemas)

    def offered(self, name: str) -> str:
        """Returns the offered tool that the model means by this name, which may have a namespace in front; "" for none.
        """
        if name in self._schemas:
            return name
        bare = name.removeprefix(_NAMESPACE)
        return bare if bare in self._schemas else ""

    def schema(self, name: str) -> Any:
        """Returns the schema of the tool's arguments; None where it is not known."""
        return self._schemas.get(name)


class Calling:
    """One tool call while it is read: a Notation reports the name and the arguments, and this object turns them into
    the pieces of a message. begun: True once the name is accepted. argued: True once some arguments were sent.

    An accepted name is that of an offered tool, or one of `silent`: names by which a model tells that it calls no
    tool. out: the list to which pieces are added. begin: called once, when the name is accepted. ends: texts after the
    call, which also end its arguments. openings: texts with which another call begins.
    """

    __slots__ = (
        *("_begin", "_index", "_out", "_shown", "_silent"),
        *("argued", "begun", "ends", "openings", "schema", "tools"),
    )

    def __init__(
        self, index: int, tools: Tools, silent: tuple[str, ...], out: list[Piece], begin: Callable[[], None]
    ) -> None:
        self.tools = tools
        self.ends: tuple[str, ...] = ()
        self.openings: tuple[str, ...] = ()
        self.schema: Any = None
        self.begun = self.argued = False
        self._index, self._silent, self._out, self._begin = index, silent, out, begin
        self._shown = False

    @property
    def counts(self) -> bool:
        """True where the call names an offered tool, so that the client gets it and it takes an index."""
        return self.begun and self._shown

    def knows(self, name: str) -> bool:
        """Returns True where this is the name of an offered tool, or a name by which the model tells that it calls
        none (`silent`). The method `name` accepts only such names."""
        return bool(self.tools.offered(name)) or name in self._silent

    def name(self, name: str, call_id: str = "") -> bool:
        """Takes the call's name. Returns False where no tool has this name, so that the text is not a call."""
        offered = self.tools.offered(name)
        if not offered and name not in self._silent:
            return False
        self.begun, self._shown = True, bool(offered)
        self._begin()
        if offered:
            self.schema = self.tools.schema(offered)
            self._out.append(CallBegan(self._index, offered, call_id))
        return True

    def argue(self, text: str) -> None:
        """Takes more of the arguments' JSON."""
        if text and self._shown:
            self.argued = True
            self._out.append(CallArguments(self._index, text))

    def no_arguments(self) -> None:
        """Marks the call as complete; if it had no arguments, they become an empty object."""
        if not self.argued:
            self.argue(NO_ARGUMENTS)
