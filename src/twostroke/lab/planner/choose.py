"""Finds the hardware of the catalogue that suffices, and raises the error where none does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from twostroke.lab.planner.ask import Ask
from twostroke.lab.planner.expect import Expectation, expect
from twostroke.lab.planner.target import catalogue_target, device_counts
from twostroke.ops.program.model import Model
from twostroke.types.errors import ConfigError
from twostroke.types.spec.hardware import HardwareSpec
from twostroke.types.spec.hardware_catalogue import CATALOGUE


@dataclass(frozen=True, slots=True)
class Candidate:
    """Hardware of the catalogue, with the smallest number of devices that suffices, or the largest number that was
    tried. lacks: what is not sufficient: "memory", "ttft", "itl"; empty where all is."""

    hardware: HardwareSpec
    expectation: Expectation
    lacks: tuple[str, ...]

    @property
    def does(self) -> bool:
        """Whether the target holds the model and all streams and meets every objective."""
        return not self.lacks


def lacking(ask: Ask, expectation: Expectation) -> tuple[str, ...]:
    """Returns what the target lacks for what was asked: "memory", "ttft", "itl"; empty where it lacks nothing."""
    found = []
    if expectation.room.sequences < ask.concurrency:
        found.append("memory")
    load = expectation.load
    if load is None:
        return tuple(found)
    if ask.ttft_s is not None and load.ttft_s > ask.ttft_s:
        found.append("ttft")
    if ask.itl_s is not None and load.itl_s > ask.itl_s:
        found.append("itl")
    return tuple(found)


def candidates(spec: Model, ask: Ask, known: Sequence[HardwareSpec] = CATALOGUE) -> list[Candidate]:
    """Returns a candidate for each entry of the catalogue that is on sale, in the catalogue's order."""
    return [_smallest(spec, ask, hardware) for hardware in known if not hardware.projected]


def require_possible(spec: Model, ask: Ask, found: Sequence[Candidate], here: Expectation | None) -> None:
    """Raises ConfigError that names the objective, where neither the catalogue nor `here` meets all objectives."""
    if any(each.does for each in found) or (here is not None and not lacking(ask, here)):
        return
    tried = [each.expectation for each in found] + ([here] if here is not None else [])
    loads = [(each.load, each.target) for each in tried if each.load is not None]
    roomy = [each for each in tried if each.room.sequences >= ask.concurrency]
    if not roomy:
        most = max(tried, key=lambda each: each.room.sequences)
        raise ConfigError(
            f"--concurrency {ask.concurrency} of --context {ask.context_tokens} fits nowhere in the catalogue.",
            why=f"The most is {most.room.sequences:,} sequences, on {most.target.title}.",
            fix="Ask for fewer or shorter sequences, int4 weights or int8 K and V.",
        )
    # An ITL objective makes chunks short, and short chunks read a prompt more slowly. So the possible TTFT is computed
    # without the ITL objective.
    hasty = replace(ask, itl_s=None)
    alone = [expect(spec, hasty, target) for _, target in loads] if ask.ttft_s is not None else []
    for name, wanted, got in (
        ("ttft", ask.ttft_s, [(each.load.ttft_s, each.target.title) for each in alone if each.load is not None]),
        ("itl", ask.itl_s, [(load.itl_s, target.title) for load, target in loads]),
    ):
        if wanted is None:
            continue
        best_s, where = min(got)
        if best_s > wanted:
            raise ConfigError(
                f"--{name} {seconds(wanted)} cannot be met by any hardware of the catalogue.",
                why=f"The best is {seconds(best_s)} on {where}, with {ask.concurrency} streams, prompts of "
                f"{ask.prompt_tokens:,} tokens and {ask.weights} weights.",
                fix="Ask for fewer streams, shorter prompts or narrower weights, or allow more time.",
            )
    if ask.ttft_s is not None or ask.itl_s is not None:
        raise ConfigError(
            "--ttft and --itl cannot be met together by any hardware of the catalogue that holds all streams.",
            why="Each alone can; with both "
            + "; ".join(f"{each.hardware.name} misses {', '.join(each.lacks)}" for each in found),
            fix="Allow more time for one of them, or ask for fewer streams.",
        )


def seconds(value: float) -> str:
    """Returns a time as text: 0.05 -> "50 ms"."""
    if value >= 1:
        return f"{value:,.3g} s" if value < 100 else f"{value:,.0f} s"
    return f"{1e3 * value:.3g} ms" if value >= 1e-3 else f"{1e6 * value:.3g} us"


def _smallest(spec: Model, ask: Ask, hardware: HardwareSpec) -> Candidate:
    found: Candidate | None = None
    for devices in device_counts(hardware):
        expectation = expect(spec, ask, catalogue_target(hardware.split_over(devices)))
        found = Candidate(hardware, expectation, lacking(ask, expectation))
        if found.does:
            break
    if found is None:
        raise RuntimeError("no number of devices was tried")
    return found
