"""Makes a workload from the options of a load run: a synthetic one by its name or by numbers, or a trace from its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.lab.workload.arrange import Arrangement, arranged, at_times
from twostroke.lab.workload.arrivals import gamma_bursts
from twostroke.lab.workload.draws import Draws
from twostroke.lab.workload.lengths import Lengths
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.sharegpt import about_tokens
from twostroke.lab.workload.synthetic import NAMED, Load, bursts, closed_loop
from twostroke.lab.workload.traces import FORMATS, SHAREGPT, format_of, parse_trace
from twostroke.types.errors import ConfigError

DEFAULT_REQUESTS, DEFAULT_USERS = 100, 1
POISSON = 1.0


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace's text and where it came from. form: one of FORMATS; None where the first line of the text decides."""

    text: str
    source: str
    form: str | None = None
    count_tokens: Callable[[str], int] = about_tokens


@dataclass(frozen=True, slots=True)
class LoadAsk:
    """The options of a load run. users: the users of a closed loop. rate_per_s: the requests a second of an open loop.
    With neither of the two, a trace with times keeps them, a named workload has one request a second, and others have
    one user.

    burstiness: the shape of the gaps' Gamma distribution, 1 is Poisson. prompt, output: the lengths of synthetic
    requests.
    """

    users: int | None = None
    rate_per_s: float | None = None
    burstiness: float = POISSON
    requests: int | None = None
    prompt: Lengths = Lengths(128)
    output: Lengths = Lengths(64)
    named: str | None = None
    trace: Trace | None = None
    rate_scale: float = 1.0
    tokens_scale: float = 1.0
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests of a load run. users: the users of a closed loop; None for an open loop. words: a description for
    people."""

    requests: list[WorkloadRequest]
    users: int | None
    words: str


def make_workload(ask: LoadAsk) -> Workload:
    """Makes the workload that is asked for. Raises ConfigError for options that contradict each other; TraceError for a
    broken trace."""
    _check(ask)
    if ask.trace is not None:
        found, users, words = _replayed(ask, ask.trace)
    elif ask.named is not None:
        found, users, words = _named(ask, ask.named)
    else:
        found, users, words = _plain(ask)
    how = Arrangement(
        rate_scale=ask.rate_scale,
        limit=ask.requests,
        tokens_scale=ask.tokens_scale if ask.trace is not None else 1.0,
        max_prompt_tokens=ask.max_prompt_tokens,
        max_output_tokens=ask.max_output_tokens,
    )
    return Workload(arranged(found, how), users, words)


def _check(ask: LoadAsk) -> None:
    if ask.users is not None and ask.rate_per_s is not None:
        raise ConfigError(
            "--concurrency and --rate are two kinds of load.",
            why="Users wait for their answers; a rate sends at fixed times.",
            fix="Give one of them.",
        )
    if ask.trace is not None and ask.named is not None:
        raise ConfigError("--trace and --workload are two workloads.", fix="Give one of them.")
    if ask.burstiness != POISSON and ask.rate_per_s is None:
        raise ConfigError("--burstiness changes arrivals by --rate, and there is no --rate.", fix="Add --rate.")
    if ask.rate_scale != 1.0 and (ask.trace is None or ask.users is not None or ask.rate_per_s is not None):
        raise ConfigError(
            "--rate-scale changes the times of a trace.", fix="Use it with --trace, without --rate and --concurrency."
        )


def _plain(ask: LoadAsk) -> tuple[list[WorkloadRequest], int | None, str]:
    count = ask.requests or DEFAULT_REQUESTS
    prompt, output = ask.prompt.scaled(ask.tokens_scale), ask.output.scaled(ask.tokens_scale)
    lengths = f"prompts of {_lengths(prompt)} tokens, answers of {_lengths(output)}"
    if ask.rate_per_s is not None:
        found = bursts(ask.rate_per_s, count, prompt, output, ask.seed, ask.burstiness)
        return found, None, f"{_arriving(ask)}, {lengths}"
    users = ask.users or DEFAULT_USERS
    return closed_loop(count, prompt, output, ask.seed), users, f"{_users(users)}, {lengths}"


def _named(ask: LoadAsk, name: str) -> tuple[list[WorkloadRequest], int | None, str]:
    if name not in NAMED:
        raise ConfigError(f"There is no workload {name!r}.", fix="Choose one of " + ", ".join(NAMED) + ".")
    load = Load(ask.rate_per_s or 1.0, ask.requests or DEFAULT_REQUESTS, ask.seed, ask.tokens_scale)
    found = NAMED[name](load)
    if ask.users is not None:
        return found, ask.users, f"{name}, {_users(ask.users)}"
    return found, None, f"{name} at {load.rate_per_s:g} requests/s"


def _replayed(ask: LoadAsk, trace: Trace) -> tuple[list[WorkloadRequest], int | None, str]:
    form = trace.form or format_of(trace.text, trace.source)
    if form not in FORMATS:
        raise ConfigError(f"There is no trace format {form!r}.", fix="Choose one of " + ", ".join(FORMATS) + ".")
    found = parse_trace(trace.text, trace.source, form, trace.count_tokens)[: ask.requests]
    words = f"{trace.source} ({form}, {len(found):,} requests)"
    if ask.rate_per_s is not None:
        times = gamma_bursts(ask.rate_per_s, len(found), Draws(ask.seed, "arrivals"), ask.burstiness)
        return at_times(found, times), None, f"{words}, {_arriving(ask)}"
    if ask.users is not None:
        return found, ask.users, f"{words}, {_users(ask.users)}"
    if form == SHAREGPT:
        return found, DEFAULT_USERS, f"{words}, {_users(DEFAULT_USERS)} (the trace has no times)"
    return found, None, f"{words} at its own times" + (f" x {ask.rate_scale:g}" if ask.rate_scale != 1 else "")


def _users(count: int) -> str:
    return f"{count} users who wait for their answers" if count > 1 else "1 user who waits for each answer"


def _arriving(ask: LoadAsk) -> str:
    kind = "Poisson" if ask.burstiness == POISSON else f"Gamma {ask.burstiness:g}"
    return f"{ask.rate_per_s:g} requests/s ({kind})"


def _lengths(lengths: Lengths) -> str:
    return f"{lengths.median_tokens:,}" + (f" (log-normal, {lengths.sigma:g})" if lengths.sigma else "")
