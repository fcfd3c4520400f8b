"""What the styles share: a buffer that states consume, and text whose white space beside calls is dropped.

Knows: pieces.
Must not know: any style.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from twostroke.text.tools.json_scan import NO_ARGUMENTS, CallObject, ValueScanner
from twostroke.text.tools.marks import starts_with
from twostroke.text.tools.pieces import CallArguments, CallBegan, Piece, Said

State = Callable[[], bool]


class StyleReader:
    """A state takes from `_buffer` and returns True where another turn may get further, False where it needs more text.

    names: the tools that the request offers.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._buffer = ""
        self._out: list[Piece] = []
        self._num_calls = 0
        self._spaces = ""  # white space at the end of the text, said only where no call follows
        self._after_call = False
        self._call: CallObject | None = None
        self._arguments: ValueScanner | None = None
        self._state: State = self._begin

    def feed(self, text: str) -> list[Piece]:
        """Take more text; what is sure now."""
        self._buffer += text
        while self._state():
            pass
        return self._taken()

    def finish(self) -> list[Piece]:
        """What was held back; a call that broke off stays as far as it came."""
        self._end()
        if not self._after_call:
            self._out.append(Said(self._spaces))
        self._buffer = self._spaces = ""
        return self._taken()

    def _begin(self) -> bool:
        raise NotImplementedError

    def _end(self) -> None:
        """Say what is held and is no call after all."""
        if self._call is not None and not self._call.begun:
            self._say(self._call_mark() + self._call.raw)
        self._say(self._buffer)

    def _call_mark(self) -> str:
        """What stood before the object that is being read."""
        return ""

    def _taken(self) -> list[Piece]:
        out, self._out = [p for p in self._out if isinstance(p, CallBegan) or p.text], []
        return out

    def _say(self, text: str) -> None:
        if self._after_call:
            text = text.lstrip()
        if not text:
            return
        self._after_call = False
        text = self._spaces + text
        solid = text.rstrip()
        self._spaces = text[len(solid) :]
        self._out.append(Said(solid))

    def _skip_spaces(self, also: str = "") -> bool:
        """True where something else stands at the front."""
        self._buffer = self._buffer.lstrip(" \t\r\n" + also)
        return bool(self._buffer)

    def _skip_mark(self, mark: str) -> bool:
        """A state behind a call, where its closing mark stands; a model that forgets it is understood too."""
        if not self._skip_spaces():
            return False
        closed = starts_with(self._buffer, mark)
        if closed is None:
            return False
        if closed:
            self._buffer = self._buffer[len(mark) :]
        self._state = self._begin
        return True

    def _open_call(self, after: State) -> None:
        """Read a name and its arguments in one object from now on; `after` is the state behind it."""
        self._call = CallObject(self._num_calls, self._accepts)

        def state() -> bool:
            return self._read_call(after)

        self._state = state

    def _read_call(self, after: State) -> bool:
        call = self._call
        if call is None or not self._buffer:
            return False
        pieces, self._buffer = call.feed(self._buffer)
        self._out += pieces
        if call.begun:
            self._drop_spaces()
        if not call.done:
            return False
        self._num_calls += call.begun
        if not call.begun:
            self._say(self._call_mark() + call.raw)
        self._call = None
        self._state = after if call.begun else self._no_call
        return True

    def _no_call(self) -> bool:
        """The state behind what looked like a call and is text."""
        self._state = self._begin
        return True

    def _accepts(self, _name: str) -> bool:
        """A style with marks takes every name: the client knows what to do with a tool that it does not have."""
        return True

    def _name_call(self, name: str, after: State) -> None:
        """The name is known; from now on the buffer holds its arguments as one value."""
        self._drop_spaces()
        self._out.append(CallBegan(self._num_calls, name))
        self._arguments = ValueScanner()

        def state() -> bool:
            return self._read_arguments(after)

        self._state = state

    def _read_arguments(self, after: State) -> bool:
        scanner = self._arguments
        if scanner is None or not self._buffer:
            return False
        taken = scanner.take(self._buffer) if self._buffer[0] in "{[" or scanner.begun else 0
        if taken == 0:
            self._out.append(CallArguments(self._num_calls, NO_ARGUMENTS))
        self._out.append(CallArguments(self._num_calls, self._buffer[:taken]))
        self._buffer = self._buffer[taken:]
        if taken and not scanner.done:
            return False
        self._num_calls += 1
        self._arguments = None
        self._state = after
        return True

    def _drop_spaces(self) -> None:
        self._spaces, self._after_call = "", True
