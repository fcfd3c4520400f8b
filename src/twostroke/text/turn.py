"""One assistant's turn as it streams: reasoning, text and tool calls told apart.

    turn = Turn(form, names, rendered)      pieces = turn.feed(text) ... turn.finish()

Knows: the readers.
Must not know: tokens, JSON shapes of any API.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from twostroke.text.reasoning import ReasoningReader, ReasoningStyle, begins_inside
from twostroke.text.tools.pieces import Piece, Plain, Reader, Said, joined
from twostroke.text.tools.styles import ToolStyle


class TurnForm(Struct, frozen=True):
    """How a model writes its turns; None where it does not reason, or has no way to call tools."""

    reasoning: ReasoningStyle | None = None
    tools: ToolStyle | None = None


class Turn:
    """tool_names: of the tools that the request lets the model call, mapped to the schemas of their arguments where
    those are known; empty leaves calls as text.

    rendered: the end of the prompt's text, which may have opened the reasoning.
    """

    def __init__(self, form: TurnForm, tool_names: Collection[str] = (), rendered: str = "") -> None:
        style = form.reasoning
        self._reasoning = None if style is None else ReasoningReader(style, begins_inside(style, rendered))
        self._tools: Reader = form.tools.reader(tool_names) if form.tools and tool_names else Plain()

    @property
    def plain(self) -> bool:
        """True where all text is for the user, as it comes."""
        return self._reasoning is None and isinstance(self._tools, Plain)

    @property
    def reasoning(self) -> bool:
        """True while what comes is reasoning."""
        return self._reasoning is not None and self._reasoning.inside

    def feed(self, text: str) -> list[Piece]:
        """Take more text; what is sure now, neighbours joined."""
        return self._through(self._reasoning.feed(text) if self._reasoning else [Said(text)])

    def finish(self) -> list[Piece]:
        """What was held back."""
        last = self._through(self._reasoning.finish() if self._reasoning else [])
        return joined([*last, *self._tools.finish()])

    def _through(self, pieces: list[Piece]) -> list[Piece]:
        made: list[Piece] = []
        for piece in pieces:
            made += self._tools.feed(piece.text) if isinstance(piece, Said) else [piece]
        return joined(made)
