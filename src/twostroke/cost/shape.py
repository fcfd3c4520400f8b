"""The sequences of a step, and the prediction of its time."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from twostroke.cost.work import Work
from twostroke.types.plan import Role


class Segment(NamedTuple):
    """One sequence's part of a step: positions [start, start + num_tokens). samples: its last row needs logits.

    role: the sequence computes a prompt (prefill) or its next token (decode). scored: the number of prompt rows that
    need logits because the request asks for the prompt's log probabilities. drafts: the number of rows at the end that
    are guesses; they need logits, too. adapter: the number of the adapter that its rows are computed with; -1 for none.
    later: in some models the rows of an image see each other. This is then the number of pairs (row, later position
    that it sees); otherwise 0.
    """

    start: int
    num_tokens: int
    samples: bool
    role: Role
    scored: int = 0
    drafts: int = 0
    adapter: int = -1
    later: int = 0

    @property
    def logit_rows(self) -> int:
        """Rows that need logits."""
        return self.samples + self.drafts + self.scored

    @staticmethod
    def prefill(start: int, num_tokens: int, samples: bool, adapter: int = -1) -> Segment:
        """Returns the part of a step that computes `num_tokens` positions of a prompt. samples: True for the prompt's
        last chunk, after which the first token is sampled."""
        return Segment(start, num_tokens, samples, Role.PREFILL, adapter=adapter)

    @staticmethod
    def decode(start: int, adapter: int = -1) -> Segment:
        """Returns the part of a sequence that gets one more token. Its last token is at position `start`."""
        return Segment(start, 1, True, Role.DECODE, adapter=adapter)


class Part(Protocol):
    """What a cost model must know of one sequence in a step. A Segment has it, and so has a planned sequence."""

    @property
    def start(self) -> int:
        """The first position that the step computes."""

    @property
    def num_tokens(self) -> int:
        """The number of positions that the step computes."""

    @property
    def role(self) -> Role:
        """Whether the sequence computes its prompt or decodes in the step."""

    @property
    def logit_rows(self) -> int:
        """Rows that need logits."""

    @property
    def adapter(self) -> int:
        """The adapter of the sequence's rows; -1 for none."""

    @property
    def later(self) -> int:
        """The number of pairs of a row and a later position that the row sees; 0 in causal attention. Rows of an image
        may see each other."""


class Bound(enum.Enum):
    """What the time of one part of a step, such as its attention, is spent on."""

    MEMORY = "memory"
    ARITHMETIC = "arithmetic"
    HOST = "host"
    LINK = "exchange"


@dataclass(frozen=True, slots=True)
class PartPrediction:
    """The predicted time of one part of a step.

    name: `weights` (products of the layers), `head` (logits), `attention`, `other` (norms, rope, KV writes), or `host`.
    A model in several processes also has the part `exchange`. bound: the resource that limits the part: memory
    bandwidth, arithmetic, the host or the link between processes.
    """

    name: str
    seconds: float
    work: Work
    bound: Bound


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """A step's time, part by part."""

    parts: tuple[PartPrediction, ...]

    @property
    def seconds(self) -> float:
        """The sum of the parts' seconds. They are added in their order, so that the sum equals that of `decode_run` bit
        for bit."""
        total = 0.0
        for part in self.parts:
            total += part.seconds
        return total

    @property
    def work(self) -> Work:
        """The sum of the parts' FLOPs and bytes."""
        return sum((part.work for part in self.parts), Work())


class StepCost(Protocol):
    """Predicts a step. For hardware of the catalogue it uses the roofline model, for this machine measured rates."""

    def predict(self, segments: Sequence[Part]) -> StepPrediction:
        """Predicts the time of one step with these sequences. A step without sequences takes only the host's part of
        the time."""


class SteadyCost(StepCost, Protocol):
    """A StepCost that also predicts many steps of the same streams at once."""

    def decode_run(self, starts: Sequence[int], steps: int) -> Iterator[float]:
        """Yields the predicted seconds of `steps` decode steps, one after the other. In step i, sequence j computes
        position starts[j] + i and samples. The seconds are equal, bit for bit, to what `predict` returns for each of
        these steps. There is at least one sequence, and none has an adapter."""

    def predict_beside(self, starts: Sequence[int], segments: Sequence[Part]) -> StepPrediction:
        """Predicts a step of `segments` plus one decoding sequence at each position in `starts`.

        The result equals, bit for bit, what `predict` returns for all of them together. There must be at least one
        start. The sequences at `starts` have no adapters.
        """
