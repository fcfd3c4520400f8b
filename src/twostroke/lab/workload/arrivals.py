"""Arrival times of requests: rising times in seconds from the workload's beginning."""

from __future__ import annotations

from collections.abc import Callable

from twostroke.lab.workload.draws import Draws


def evenly(rate_per_s: float, count: int) -> list[float]:
    """Returns times with one request every 1 / rate seconds, the first at 0."""
    return [index / rate_per_s for index in range(count)]


def poisson(rate_per_s: float, count: int, draws: Draws) -> list[float]:
    """Returns the times of independent users, which have exponential gaps."""
    return _summed(count, lambda: draws.exponential(1 / rate_per_s))


def gamma_bursts(rate_per_s: float, count: int, draws: Draws, shape: float = 0.25) -> list[float]:
    """Returns times with Gamma gaps. Shape 1 is Poisson. With a smaller shape requests come in bursts (0.25: the gaps
    have twice the standard deviation); with a larger one they come more evenly."""
    return _summed(count, lambda: draws.gamma(shape, 1 / rate_per_s))


def on_off(rate_per_s: float, count: int, draws: Draws, on_s: float, off_s: float) -> list[float]:
    """Returns Poisson times in periods of on_s seconds, with no requests in the periods of off_s seconds between them.
    rate_per_s is the mean over both kinds of periods."""
    busy = poisson(rate_per_s * (on_s + off_s) / on_s, count, draws)
    return [time_s + off_s * int(time_s / on_s) for time_s in busy]


def _summed(count: int, gap: Callable[[], float]) -> list[float]:
    times, now_s = [], 0.0
    for _ in range(count):
        now_s += gap()
        times.append(now_s)
    return times
