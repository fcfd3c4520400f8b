"""Measures throughput and latency for each of several numbers of users, and TTFT and ITL for each of several prompt
lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from twostroke.lab.bench.load.session import Measured, Session, Watch
from twostroke.lab.workload.figures import Figures, figures
from twostroke.lab.workload.lengths import Lengths
from twostroke.lab.workload.synthetic import closed_loop
from twostroke.types.errors import ConfigError

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SweepAsk:
    """The points of a sweep. users: the numbers of users to measure, with prompts of prompt_tokens. lengths: the prompt
    lengths to measure, with one user.

    Answers have output_tokens. rounds: the number of requests of each user, and of each length.
    """

    users: tuple[int, ...] = (1, 2, 4, 8, 16)
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    prompt_tokens: int = 256
    output_tokens: int = 64
    rounds: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class UsersPoint:
    """The measured rates and latencies of a closed loop of `users` users."""

    users: int
    figures: Figures


@dataclass(frozen=True, slots=True)
class LengthPoint:
    """The measured latencies of one user at one prompt length. prompt_tokens: the counted tokens. context_tokens: the
    context in the middle of the answers. ttft_s, itl_s: medians over requests, in seconds. itl_s is the median of each
    request's mean gap, because single gaps mean little where a server sends several tokens at once."""

    prompt_tokens: int
    context_tokens: float
    ttft_s: float
    itl_s: float
    figures: Figures


@dataclass(frozen=True, slots=True)
class UsersPrediction:
    """The predicted rates and latencies of a closed loop of so many users. output_tokens_per_s: tokens a second of all
    users together. itl_s, ttft_s: means in seconds."""

    users: int
    output_tokens_per_s: float
    itl_s: float
    ttft_s: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the cost model predicts for the points of a sweep. ttft, itl: for each prompt length, (tokens of the prompt,
    seconds). words: names the model and the measurement of the machine from which predictions are made."""

    words: str
    users: tuple[UsersPrediction, ...]
    ttft: tuple[tuple[float, float], ...]
    itl: tuple[tuple[float, float], ...]


@dataclass(slots=True)
class Sweep:
    """The measurements of a sweep over numbers of users and prompt lengths. After an interrupt it holds the points that
    were complete."""

    model: str
    ask: SweepAsk
    users: list[UsersPoint] = field(default_factory=list)
    lengths: list[LengthPoint] = field(default_factory=list)
    interrupted: bool = False
    prediction: Prediction | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the measured and predicted points as values for JSON."""
        return asdict(self)


USERS_SEED, PRIME = 1 << 32, 1009
"""The prompts for N users have the seed of the sweep + USERS_SEED + PRIME * N. USERS_SEED is larger than every prompt
length, so these seeds differ from those of points that measure a prompt length (seed of the sweep + length)."""


async def walk(session: Session, ask: SweepAsk, note: Note, watch: Watch) -> Sweep:
    """Measures each prompt length first, then each number of users; an interrupt ends the sweep early. Raises
    ConfigError where no request of a point was answered."""
    found = Sweep(session.facts.model, ask)
    for length in ask.lengths:
        measured = await _point(session, ask, length, 1, ask.seed + length, watch)
        if measured.interrupted:
            found.interrupted = True
            return found
        found.lengths.append(_length_point(measured, length, ask))
        note(f"prompts of {length:,} tokens: TTFT {1e3 * found.lengths[-1].ttft_s:,.1f} ms")
    for users in ask.users:
        seed = ask.seed + USERS_SEED + PRIME * users
        measured = await _point(session, ask, ask.prompt_tokens, users, seed, watch)
        if measured.interrupted:
            found.interrupted = True
            return found
        point = UsersPoint(users, _answered(measured, f"{users} users"))
        found.users.append(point)
        note(f"{users} user{'s' if users > 1 else ''}: {point.figures.output_tokens_per_s:,.1f} tok/s")
    return found


async def _point(session: Session, ask: SweepAsk, length: int, users: int, seed: int, watch: Watch) -> Measured:
    """Measures one point. Each point has its own seed, so that no prompt is found in the server's prefix cache."""
    requests = closed_loop(users * ask.rounds, Lengths(length), Lengths(ask.output_tokens))
    return await session.measure(requests, users, seed, watch=watch)


def _answered(measured: Measured, what: str) -> Figures:
    found = figures(measured.seen)
    if not found.completed:
        raise ConfigError(
            f"No request was answered with {what}.",
            why="; ".join(found.errors) + ".",
            fix="Leave this point out, or give the server more room.",
        )
    return found


def _length_point(measured: Measured, length: int, ask: SweepAsk) -> LengthPoint:
    found = _answered(measured, f"prompts of {length:,} tokens")
    prompt = round(found.prompt_tokens / found.completed) if found.prompt_tokens else length
    output = found.output_tokens / found.completed
    ttft, itl = found.ttft, found.tpot
    return LengthPoint(prompt, prompt + output / 2, ttft.p50 if ttft else 0.0, itl.p50 if itl else 0.0, found)


def sweep_text(found: Sweep) -> str:
    """Returns two tables as text, the predictions next to the measured values."""
    lines = [f"{found.model}" + (": interrupted, these points are whole" if found.interrupted else "")]
    predicted = found.prediction
    if found.lengths:
        ttft, itl = dict(predicted.ttft) if predicted else {}, dict(predicted.itl) if predicted else {}
        lines += ["", f"one user, {found.ask.output_tokens} tokens out; medians over requests, ms"]
        lines.append(_cells("prompt", "TTFT", "predicted", "context", "ITL", "predicted"))
        for each in found.lengths:
            lines.append(
                _cells(
                    f"{each.prompt_tokens:,}",
                    *(_ms(each.ttft_s), _ms(ttft.get(each.prompt_tokens))),
                    *(f"{each.context_tokens:,.0f}", _ms(each.itl_s), _ms(itl.get(each.context_tokens))),
                )
            )
    if found.users:
        by_users = {each.users: each for each in predicted.users} if predicted else {}
        lines += ["", f"prompts of {found.ask.prompt_tokens:,} tokens, {found.ask.output_tokens} out; means, ms"]
        lines.append(_cells("users", "tok/s", "predicted", "ITL", "predicted", "TTFT", "predicted", "failed"))
        for point in found.users:
            lines.append(_users_line(point, by_users.get(point.users)))
    if predicted:
        lines += ["", f"predicted: {predicted.words}"]
    return "\n".join(lines)


def _users_line(point: UsersPoint, guess: UsersPrediction | None) -> str:
    seen = point.figures
    return _cells(
        str(point.users),
        *(f"{seen.output_tokens_per_s:,.1f}", f"{guess.output_tokens_per_s:,.1f}" if guess else "-"),
        *(_ms(seen.itl.mean if seen.itl else None), _ms(guess.itl_s if guess else None)),
        *(_ms(seen.ttft.mean if seen.ttft else None), _ms(guess.ttft_s if guess else None)),
        str(seen.requests - seen.completed),
    )


def _cells(*cells: str) -> str:
    return "".join(f"{cell:>11}" for cell in cells)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:,.1f}"


def sorted_unique(values: Sequence[int]) -> tuple[int, ...]:
    """Returns the different values in ascending order."""
    return tuple(sorted(set(values)))
