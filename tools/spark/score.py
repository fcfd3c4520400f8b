"""Decides whether a generated text is the right answer: the definition of spark's held-out score."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from typing import Any

from tools.spark.normal import normalise

NEAR = 0.9


@dataclass(frozen=True)
class Case:
    """A question, and the id of the entry that has its right answer."""

    question: str
    entry_id: str


@dataclass(frozen=True)
class Verdict:
    """The result of one case. `nearest_id` is the id of the entry whose answer is most similar to the text."""

    question: str
    entry_id: str
    right: bool
    similarity: float
    nearest_id: str
    text: str


@dataclass(frozen=True)
class Score:
    """The verdicts of a run, in the order of its cases."""

    verdicts: tuple[Verdict, ...]

    @property
    def right(self) -> int:
        """The number of cases with the right answer."""
        return sum(verdict.right for verdict in self.verdicts)

    @property
    def share(self) -> float:
        """The number of right answers divided by the number of cases."""
        return self.right / len(self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON: the counts, the share, and each wrong answer in full."""
        misses = [asdict(verdict) for verdict in self.verdicts if not verdict.right]
        return {"right": self.right, "cases": len(self.verdicts), "share": round(self.share, 4), "misses": misses}


def similarity(one: str, other: str) -> float:
    """Returns how similar two texts are, 0 to 1: difflib's ratio over the words of their normal forms."""
    return SequenceMatcher(None, normalise(one).split(), normalise(other).split(), autojunk=False).ratio()


def judge(case: Case, text: str, answers: dict[str, str]) -> Verdict:
    """Returns the verdict on `text`. answers: every entry id with its answer. Raises KeyError for an unknown id."""
    reference = answers[case.entry_id]
    near = similarity(text, reference)
    if normalise(text) == normalise(reference):
        return Verdict(case.question, case.entry_id, True, near, case.entry_id, text)
    nearest = max(answers, key=lambda entry_id: similarity(text, answers[entry_id]))
    right = near >= NEAR and near >= similarity(text, answers[nearest])
    return Verdict(case.question, case.entry_id, right, near, case.entry_id if right else nearest, text)


def score(cases: Sequence[Case], texts: Sequence[str], answers: dict[str, str]) -> Score:
    """Judge one text for each case. Raises ValueError when the numbers of cases and texts differ."""
    return Score(tuple(judge(case, text, answers) for case, text in zip(cases, texts, strict=True)))
