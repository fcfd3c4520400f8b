"""Reads one assistant's turn as it streams, and separates thoughts, text and calls. The same code reads every format.

    reader = TurnReader(form, tools, prompt_end)    pieces = reader.feed(text) ... reader.finish()

The joined pieces depend on the text alone, not on how the text is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from twostroke.text.talk.calling import Calling, Tools
from twostroke.text.talk.format import FENCE, CallForm, Format
from twostroke.text.talk.message_turn import read_messages
from twostroke.text.talk.pieces import CallBegan, Piece, Said, Thought
from twostroke.text.talk.stream import Reading, TextStream, marks_of
from twostroke.text.talk.trimmed import Trimmed

_FENCES = (f"{FENCE}json", f"{FENCE}python", FENCE)


class TurnReader:
    """Reads one assistant's turn as its text comes, and divides it into pieces: thoughts, text and calls.

    prompt_end: the end of the prompt's text, which may have opened a thought. plain: True where all text goes to the
    user as it comes.
    """

    def __init__(self, form: Format, tools: Tools, prompt_end: str = "") -> None:
        self.form = form
        self.tools = tools
        self.stream = TextStream()
        self.out: list[Piece] = []
        self.thinking = False
        self.text = Trimmed(self._say)
        self.says: Callable[[str], object] = self.text.say
        self._after_call = False  # True: no text since the last call
        self._num_calls = self._accepted = 0
        self._front = True  # True: only white space stands between the beginning and this place
        self._thought = self._unclosed = False
        self._forms = form.calls if tools else ()
        self.plain = not (form.messages or form.wraps or form.thought or self._forms)
        self._bare = [call for call in self._forms if call.bare]
        self.starts = tuple({text for call in self._forms for text in call.starts})
        self._run: Generator[None, None, None] | None = self._turn(prompt_end)
        if form.messages is not None:
            self._run = read_messages(self, form.messages, prompt_end)
        self._advance()

    def feed(self, text: str) -> list[Piece]:
        """Takes more text. Returns the pieces that are certain now."""
        if self.plain:
            return [Said(text)] if text else []
        if self.stream.passes(text):
            return self._taken()
        self.stream.add(text)
        self._advance()
        return self._taken()

    def passes(self, text: str) -> bool:
        """Takes a text if it is certainly more answer text for the user, and returns True. No piece is returned for it:
        the caller sends the text itself, which is quicker than `feed`.

        If the method returns False, nothing has changed, and `feed` must read the text.
        """
        if self.plain:
            return True
        if not (self.stream.says_at_once(text, self.says) and self.text.passes(text)):
            return False
        self._after_call = False
        return True

    def finish(self) -> list[Piece]:
        """Returns the pieces that were held back. A call that broke off keeps the arguments that came, and an
        unfinished tag after a call is left out."""
        rest = self.stream.text[self.stream.at :].strip()
        if self._after_call and rest and any(text.startswith(rest) for text in self.form.texts):
            self.stream.at = len(self.stream.text)
        self.stream.ended = True
        self._advance()
        self.text.finish()
        return self._taken()

    def call(self) -> Calling:
        """Returns a new Calling for a call that begins at the stream's position."""
        return Calling(self._num_calls, self.tools, self.form.silent, self.out, self._called)

    def count(self, call: Calling) -> None:
        """Counts a call that has ended, so that the next call gets the next index."""
        self._num_calls += call.counts

    def thinker(self) -> Trimmed:
        """Returns the object that receives a thought's text; white space at the text's ends is left out."""
        return Trimmed(lambda text: self.out.append(Thought(text)), trim=True)

    def _say(self, text: str) -> None:
        self._after_call = False
        self.out.append(Said(text))

    def _called(self) -> None:
        self._after_call = True
        self.stream.forget()
        self.text.drop()
        self._unclosed = self._unclosed or self.thinking
        self.thinking = False
        self._accepted += 1

    def _advance(self) -> None:
        if self._run is not None:
            try:
                next(self._run)
            except StopIteration:
                self._run = None

    def _taken(self) -> list[Piece]:
        made = [piece for piece in self.out if isinstance(piece, CallBegan) or piece.text]
        self.out.clear()
        return made

    def _turn(self, prompt_end: str) -> Reading[None]:
        thought = self.form.thought
        if thought is not None and thought.opened_by(prompt_end):
            yield from self._think(again=True)
        while True:
            if self._front:
                yield from self._at_front()
            if self._front:
                continue
            mark = yield from self.stream.until(marks_of(self._marks()), self.says)
            if not mark:
                return
            yield from self._marked(mark)

    def _marks(self) -> tuple[str, ...]:
        """Returns the marks, such as tags around calls and thoughts, that may come next in the text of an answer."""
        thought = self.form.thought
        marks = [*self.form.wraps, *self.starts]
        if thought is not None:
            if thought.anywhere:
                marks.append(thought.opening)
            if thought.anywhere or self._unclosed or not self._thought:
                marks.append(thought.closing)
        if self._accepted:
            marks += [text for call in self._forms if not call.fenced for text in (call.close, call.end)]
        return tuple(mark.strip() for mark in marks)

    def _marked(self, mark: str) -> Reading[None]:
        thought = self.form.thought
        if mark in self.starts:
            self._front = yield from self.calls(mark, self.says)
        elif thought is not None and thought.anywhere and mark == thought.opening.strip():
            yield from self._think()
        elif not self.text.begun:
            self._front = True
            self.text.drop()
        elif mark in self.form.wraps or self._accepted:
            self.text.drop()
        else:
            self.text.trim()

    def _at_front(self) -> Reading[None]:
        """Reads what may come at the beginning of a turn, after a thought and after calls: white space, then a thought,
        or calls that no mark such as `<tool_call>` opens."""
        stream, thought = self.stream, self.form.thought
        self._front = False
        between = "".join(call.between.strip() for call in self._bare) if self._accepted else ""
        stream.keep("")
        yield from stream.space(between)
        if thought is not None and (yield from stream.match(thought.opening.strip())):
            stream.forget()
            yield from self._think()
        elif self._bare and not (yield from self._marked_here()):
            yield from self._bare_calls()
        if stream.kept is not None:
            self.text.say(stream.forget())

    def _marked_here(self) -> Reading[bool]:
        """Returns True where a mark that opens calls, such as `<tool_call>`, comes next in the text. The caller looks
        for calls without such a mark only if the result is False."""
        for mark in self.starts:
            if (yield from self.stream.starts(mark)):
                return True
        return False

    def _bare_calls(self) -> Reading[None]:
        stream = self.stream
        fenced = False
        for fence in _FENCES:
            if not fenced:
                fenced = yield from stream.match(fence)
        if fenced:
            yield from stream.space()
        listed = any(call.listed for call in self._bare) and (yield from stream.match("["))
        yield from stream.space()
        for call in self._bare:
            if call.listed == listed and (yield from call.notation.fits(stream)):
                before = self._accepted
                yield from self._run_of(call, False, listed)
                self._front = self._accepted > before
                break
        if self._front and fenced:
            yield from stream.space()
            yield from stream.match(FENCE)

    def _think(self, again: bool = False) -> Reading[None]:
        """Reads a thought. again: True where the prompt ended with the thought's opening mark, which the model may
        repeat."""
        marks, stream = self.form.thought, self.stream
        if marks is None:
            return
        self.text.drop()
        self.thinking = self._thought = True
        if again:
            yield from stream.space()
            yield from stream.match(marks.opening.strip())
        thinker, closing = self.thinker(), marks.closing.strip()
        begins = (text for call in self._forms if not call.fenced for text in call.starts)
        ends = marks_of((closing, *dict.fromkeys(begins)))
        while True:
            mark = yield from stream.until(ends, thinker.say)
            if not mark or mark == closing or (yield from self.calls(mark, thinker.say)):
                break
        self.thinking = False
        self._front = True

    def calls(self, mark: str, refuse: Callable[[str], object]) -> Reading[bool]:
        """Reads the calls after this mark, such as `<tool_call>`, which was just taken. If no call follows, sends the
        mark and the text after it to `refuse`. Returns True where a call was read."""
        stream, before = self.stream, self._accepted
        stream.keep(mark)
        sections = [call for call in self._forms if mark == call.begin.strip()]
        if not (sections and (yield from self._sections(sections))):
            for call in self._forms:
                if mark == call.notation.lead:
                    stream.back(mark)
                elif mark == call.open.strip():
                    yield from stream.space()
                if mark in (call.open.strip(), call.notation.lead) and (yield from call.notation.fits(stream)):
                    yield from self._run_of(call, False, False)
                    break
        if stream.kept is not None:
            text = stream.forget() or stream.take(len(mark))
            refuse(text.removeprefix(mark) if mark in self.form.wraps else text)
        return self._accepted > before

    def _sections(self, forms: Sequence[CallForm]) -> Reading[bool]:
        """Reads a group of calls, whose opening mark (CallForm.begin) was just taken. forms: the forms of calls with
        this mark; the first one that the text matches is used. Returns False where the text matches none."""
        stream = self.stream
        yield from stream.space()
        listed = any(form.listed for form in forms) and (yield from stream.match("["))
        yield from stream.space()
        if (yield from self._empty(forms, listed)):
            return True
        for form in forms:
            opening = form.open.strip()
            fits = (yield from stream.starts(opening)) if opening else (yield from form.notation.fits(stream))
            if fits and (form.listed or not listed):
                yield from stream.match(opening)
                yield from self._run_of(form, True, listed)
                return True
        return False

    def _empty(self, forms: Sequence[CallForm], listed: bool) -> Reading[bool]:
        """Skips a group of calls that is closed before any call, so that its marks do not become text. listed: True
        where the group began with `[`. Returns False where the group is not empty."""
        stream = self.stream
        closed = listed and (yield from stream.match("]"))
        if closed:
            yield from stream.space()
        for form in forms:
            if form.end.strip() and (closed or not form.listed) and (yield from stream.match(form.end.strip())):
                stream.forget()
                self.text.drop()
                return True
        return False

    def _run_of(self, form: CallForm, section: bool, listed: bool) -> Reading[None]:
        """Reads calls of one form, one after the other. section: True where they stand in a group whose opening mark
        (CallForm.begin) was read. listed: True where the bracket that opens a list was read."""
        stream = self.stream
        while True:
            yield from stream.space()
            call = self.call()
            call.ends = tuple(text for text in (form.close.strip(), form.end.strip()) if text)
            call.openings = form.starts
            yield from form.notation.read(stream, call)
            if not call.begun:
                return
            self.count(call)
            yield from stream.space()
            yield from stream.match(form.close.strip())
            if not (section or listed):
                return
            stream.keep("")
            yield from stream.space(form.between.strip() + ",")
            if listed and (yield from stream.match("]")):
                listed = False
                yield from stream.space()
            over = section and form.end.strip() and (yield from stream.match(form.end.strip()))
            if over or not (yield from self._again(form, section, listed)):
                stream.forget()
                return

    def _again(self, form: CallForm, section: bool, listed: bool) -> Reading[bool]:
        if not (section or listed):
            return False
        if form.open.strip():
            return (yield from self.stream.match(form.open.strip()))
        return (yield from form.notation.fits(self.stream))
