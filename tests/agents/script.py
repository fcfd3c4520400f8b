"""A loop of five tool turns in any format: the raw answers, a server that gives them, and what a client must see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tests.serve.fakes import END_ID, VOCAB, FakeEngine, fake_parts
from tests.serve.harness import Live, serving
from tests.text.talk.reading import written
from twostroke.engine.limits import EngineLimits
from twostroke.text.talk.format import Format
from twostroke.text.templates.chat_template import ChatTemplate
from twostroke.types.output import Delta, Prompt
from twostroke.types.request import FinishReason

Call = tuple[str, dict[str, Any]]
TURNS: tuple[tuple[Call, ...], ...] = (
    (("hours", {"day": "Mon"}),),
    (("hours", {"day": "Tue"}), ("bell", {})),
    (("shelf", {"title": 'E "m" [a] {b}', "copies": 2, "due": True}),),
    (("bell", {}),),
    (("shelf", {"title": "one\ntwo 'three'", "place": {"rows": [1, 2]}}), ("hours", {"day": "Sunday"})),
)
ANSWER = "Open at nine."
THOUGHT = "Which day is it?"
ROOM = 200_000
LOOP_TEMPLATE = (
    "{% for t in tools or [] %}tool {{ t | tojson }}\n{% endfor %}{% for m in messages %}{{ m.role }}: "
    "{{ m.reasoning_content or '' }}{{ m.content or '' }}{% for c in m.tool_calls or [] %} call {{ c.id }} "
    "{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""A template that writes everything that a history contains."""


class LoopEngine(FakeEngine):
    """Gives answer number `place` to request number `place`, one character for each token. After the last answer it
    repeats that one."""

    def __init__(self, answers: Sequence[str]) -> None:
        super().__init__()
        self.answers = list(answers)
        self.limits = EngineLimits(ROOM, VOCAB, pool_tokens=ROOM, end_token_ids=frozenset({END_ID}))

    @property
    def texts(self) -> list[str]:
        """The texts of all prompts so far."""
        return [bytes(prompt.token_ids).decode() for prompt in self.prompts]

    def _deltas(self, prompt: Prompt) -> list[Delta]:
        text = self.answers[min(len(self.prompts), len(self.answers)) - 1]
        made = [
            Delta(prompt.request_id or "", 0, character, (0,), num_output_tokens=place + 1)
            for place, character in enumerate(text)
        ]
        end = Delta(prompt.request_id or "", 0, "", (END_ID,), finish_reason=FinishReason.STOP)
        return [*made, end]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw of a loop. calls: the calls of each turn. thoughts: the thoughts of all turns, None for a
    client that shows none."""

    calls: list[list[Call]] = field(default_factory=list)
    thoughts: list[str] | None = None
    answer: str = ""


def turns_of(form: Format) -> list[list[Call]]:
    """The calls of the five turns. A format with one message for each call has one call in each turn."""
    return [list(calls[:1] if form.messages is not None else calls) for calls in TURNS]


def thinks_in_marks(form: Format) -> bool:
    """Whether THOUGHT comes before the calls of the script."""
    return form.thought is not None and form.messages is None


def answers_of(form: Format, last: str = ANSWER) -> list[str]:
    """The model's texts: five turns of calls, and the answer."""
    marks = form.thought
    thought = f"{marks.opening}{THOUGHT}{marks.closing}" if marks is not None and thinks_in_marks(form) else ""
    said = "" if form.messages is not None or form.calls[0].bare else "I look.\n"
    return [*(thought + said + written(form, calls) for calls in turns_of(form)), final(form, last)]


def final(form: Format, text: str) -> str:
    """An answer without calls."""
    if form.messages is None:
        return text
    channels = {"harmony": "<|channel|>final<|message|>", "atem": " to=user<|message|>", "functionary32": "all\n"}
    return channels[form.name] + text


def result_of(turn: int, place: int) -> str:
    """The result of the tool: a word for each call of the loop."""
    return f"result-{turn}-{place}"


@contextmanager
def looping(form: Format, answers: Sequence[str] | None = None, **changes: Any) -> Iterator[tuple[Live, LoopEngine]]:
    """A server whose model writes the script in this format. changes: changes of the server's parts."""
    engine = LoopEngine(answers_of(form) if answers is None else answers)
    own = {"template": ChatTemplate({"default": LOOP_TEMPLATE}, {}), "format": form, "context_tokens": ROOM, **changes}
    with serving(fake_parts(engine, **own)) as live:
        yield live, engine


def check(form: Format, seen: Seen, engine: LoopEngine) -> None:
    """Checks that every call came whole and typed, that no mark came with the text, and that the last prompt has the
    whole history."""
    expected = turns_of(form)
    assert seen.calls == expected
    assert seen.answer == ANSWER
    if seen.thoughts is not None:
        assert seen.thoughts == ([THOUGHT] * len(expected) if thinks_in_marks(form) else [])
    last = engine.texts[-1]
    for turn, calls in enumerate(expected):
        for place in range(len(calls)):
            assert result_of(turn, place) in last, last
    for word in ("Mon", "Tue", "rows", "Sunday") if form.messages is None else ("Mon", "Tue", "rows"):
        assert word in last.rpartition("tool {")[2], last


class Results:
    """The tools of a loop, for clients that call functions. Each tool gives the next result."""

    def __init__(self, form: Format) -> None:
        self._places = iter(
            [result_of(turn, place) for turn, calls in enumerate(turns_of(form)) for place in range(len(calls))]
        )
        self.calls: list[Call] = []

    def take(self, name: str, arguments: dict[str, Any]) -> str:
        """Records a call and returns its result."""
        self.calls.append((name, arguments))
        return next(self._places)

    def by_turns(self, form: Format) -> list[list[Call]]:
        """The calls so far, as one list for each turn."""
        calls = iter(self.calls)
        return [list(islice(calls, len(turn))) for turn in turns_of(form)]

