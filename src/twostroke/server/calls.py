"""One HTTP request, checked and ready to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twostroke.server.api.tool_use import ToolUse
from twostroke.text.talk.calling import Tools
from twostroke.text.talk.format import Format
from twostroke.text.talk.reader import TurnReader
from twostroke.types.output import Prompt

PLAIN = Format("plain")


@dataclass(frozen=True, slots=True)
class AnswerTurn:
    """How the answer of a chat is read. earlier_calls, earlier_ids: the number of tool calls earlier in the
    conversation, and their ids. legacy_functions: True when calls are sent as `function_call`. hides_thoughts: True
    when the answer has no thoughts; they are counted all the same."""

    form: Format = PLAIN
    tools: ToolUse = ToolUse()
    rendered_end: str = ""
    earlier_calls: int = 0
    earlier_ids: frozenset[str] = frozenset()
    legacy_functions: bool = False
    hides_thoughts: bool = False

    def new_reader(self) -> TurnReader:
        """Returns a parser that divides the text of one choice of a chat answer into thoughts, text and tool calls."""
        return TurnReader(self.form, Tools(self.tools.schemas), self.rendered_end)

    def new_counting_reader(self) -> TurnReader | None:
        """Returns a parser that separates thoughts from the rest, for counting their tokens; None when the model does
        not think."""
        return self.new_reader() if self.form.thinks else None

    def new_call_id(self, fresh: str, name: str, place: int) -> str:
        """Returns the id of a tool call, in the form that the model's own template accepts. place: the place of the
        call in its turn."""
        return self.form.ids.new(fresh, name, self.earlier_calls + place)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the answer is sent. include_usage, continuous_usage: True when a stream reports usage at its end, and in each
    piece. progress: report the progress of the first prompt. timings: True when the answer has its timings."""

    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    progress: bool = False
    timings: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One API request, ready for the engine. prompts: one prompt for chat. n: the number of completions of each prompt.
    echoes: for each prompt, the text that is put before its completions; None for no text.

    logprobs: see SamplingParams. grammar_field: the client's name for the grammar. asked: the request, for APIs whose
    answers repeat it. ignored_fields: the fields of the request that have no meaning here. warnings: the changes that
    were made in the request. model: the name that the client used. slot: llama.cpp's id_slot, under which a client may
    save the answer's tokens and pages later; None where it may not.
    """

    response_id: str
    created_s: int
    prompts: tuple[Prompt, ...]
    n: int = 1
    logprobs: int | None = None
    delivery: Delivery = Delivery()
    turn: AnswerTurn = AnswerTurn()
    echoes: tuple[str, ...] | None = None
    asked: Any = field(default=None, repr=False)
    grammar_field: str = "grammar"
    ignored_fields: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    model: str = ""
    slot: int | None = 0

    @property
    def num_choices(self) -> int:
        """The number of completions of all prompts; the choice index is prompt * n + index."""
        return len(self.prompts) * self.n

    @property
    def num_answers(self) -> int:
        """The number of completions that the engine makes. Of the completions of a prompt, the best n are its choices.
        """
        return sum(prompt.params.num_answers for prompt in self.prompts)

    @property
    def num_prompt_tokens(self) -> int:
        """The sum of the tokens of all prompts; a prompt counts once, whatever n is."""
        return sum(len(prompt.token_ids) for prompt in self.prompts)

    @property
    def num_image_tokens(self) -> int:
        """The number of prompt tokens that stand for rows of images."""
        return sum(span.end - span.first for prompt in self.prompts for span in prompt.images)

    @property
    def scores_prompt(self) -> bool:
        """True when log probabilities of the prompt are part of the answer."""
        return self.echoes is not None and self.logprobs is not None
