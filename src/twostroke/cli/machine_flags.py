"""Flags that say on what machine a simulation runs, and what they are read into.

Knows: click, the planner's targets, sizes of a replica.
Must not know: workloads, how steps are predicted.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.doctor import step_notes
from twostroke.cli.load_flags import count_flag, time_flag
from twostroke.cli.plan import FORMAT, reading
from twostroke.options import parse_bytes
from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.planner.target import Target
    from twostroke.sim.autoscale import Autoscale
    from twostroke.sim.fleet import FleetPlan
    from twostroke.sim.setup import ReplicaSetup

THIS = ("this", "here")
UNITS = {"bit/s": 0.125, "B/s": 1.0}
SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def bytes_per_s(text: str) -> float:
    """ "400Gbit/s", "50GB/s" -> bytes a second. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)(bit/s|B/s)\s*", text)
    value = float(match[1]) * SCALES[match[2]] * UNITS[match[3]] if match else 0.0
    if value <= 0:
        raise ValueError("write a rate such as 400Gbit/s or 50GB/s")
    return value


def low_high(text: str) -> tuple[int, int]:
    """ "2:16" -> (2, 16). Raises ValueError."""
    match = re.fullmatch(r"\s*(\d{1,6}):(\d{1,6})\s*", text)
    low, high = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= low <= high:
        raise ValueError("write the fewest and the most replicas, such as 2:16")
    return low, high


MACHINE_FLAGS = (
    click.option("--model", metavar="NAME", default="spark", help="Folder, hub id or spark [default: spark]."),
    click.option("--revision", metavar="REV", default=None, help="Hub revision [default: main]."),
    click.option(
        "--hardware", metavar="NAME", default="this", help="Of the catalogue, 4xNAME, or this machine [default: this]."
    ),
    click.option("--weights", metavar="FORMAT", callback=FORMAT, default=None, help="f32, bf16, int8 or int4."),
    click.option("--kv-format", metavar="FORMAT", callback=FORMAT, default=None, help="f32, bf16, int8 or int4."),
    count_flag("--context", "Longest sequence [default: the model's, 32k at most]."),
    count_flag(
        "--max-step-tokens",
        "Rows of each step [default: 512, 2048 on a GPU; fewer beside streams].",
    ),
    count_flag("--max-sequences", "Sequences of a step [default: 64]."),
    click.option(
        "--kv-memory", metavar="BYTES", callback=reading(parse_bytes), default=None, help="Of a replica's KV pool."
    ),
)

FLEET_FLAGS = (
    count_flag("--replicas", "Engines, each on such a machine [default: 1].", "1"),
    click.option(
        "--router",
        metavar="NAME",
        default="least-loaded",
        help="round-robin, least-loaded, prefix-affinity or predicted",
    ),
    click.option(
        "--decoders",
        type=click.IntRange(0),
        default=0,
        help="Split pools: --replicas read prompts, so many others decode [default: 0, not split].",
    ),
    click.option(
        "--link",
        metavar="RATE",
        callback=reading(bytes_per_s),
        default="400Gbit/s",
        help="Of each replica, for K and V between pools [default: 400Gbit/s].",
    ),
    click.option(
        "--autoscale", metavar="LOW:HIGH", callback=reading(low_high), default=None, help="Replicas come and go."
    ),
    click.option(
        "--per-replica",
        type=click.FloatRange(0, min_open=True),
        default=8.0,
        help="With --autoscale: requests under way for which there is one replica [default: 8].",
    ),
    time_flag("--start-time", "With --autoscale: until a new replica takes requests [default: 60s]."),
    time_flag("--patience", "With --autoscale: fewer must do so long before one is ended [default: 120s]."),
)


def read_setup(options: dict[str, Any]) -> tuple[str, dict[str, Any], ReplicaSetup]:
    """(title, settings, one replica). Raises ConfigError, ModelError, OutOfMemory."""
    from twostroke.planner.ask import make_ask
    from twostroke.planner.model_config import read_model
    from twostroke.scheduler.gap_limiter import GapRule
    from twostroke.sim.setup import Sizes, replica_setup

    target = read_hardware(options["hardware"])
    found = read_model(options["model"], options["revision"])
    ask = make_ask(found.spec, options["weights"], options["kv_format"])
    sequences = options["max_sequences"] or 64
    step_tokens = options["max_step_tokens"] or max(target.step_tokens, sequences)
    if sequences > step_tokens:
        raise ConfigError(
            f"--max-sequences {sequences} is more than --max-step-tokens {step_tokens}.",
            why="Each decoding sequence takes one token of a step.",
            fix="Lower the first or raise the second.",
        )
    context = options["context"]
    if context is not None and context > found.spec.longest_context:
        raise ConfigError(
            f"--context {context} is more than the model's {found.spec.longest_context} positions.",
            fix=f"Ask for at most {found.spec.longest_context}.",
        )
    rule = None if options["max_step_tokens"] else GapRule()
    sizes = Sizes(step_tokens, sequences, context, options["kv_memory"], rule)
    setup = replica_setup(found.spec, ask.weights, ask.kv_kind, target.machine, target.memory_bytes, sizes)
    settings = {
        "model": options["model"],
        "hardware": target.name,
        "weights": ask.weights,
        "kv_format": ask.kv_format,
        "max_step_tokens": step_tokens,
        "step_limiter": "none" if rule is None else f"GapLimiter: {rule}, whichever is more",
        "max_sequences": sequences,
        "context_tokens": setup.context_tokens,
        "kv_tokens": setup.kv_tokens,
    }
    title = (
        f"{options['model']} ({ask.weights} weights, {ask.kv_format} K and V) on {target.title}: room for "
        f"{settings['kv_tokens']:,} tokens of K and V, {sequences} sequences and {step_tokens} rows a step"
    )
    return title, settings, setup


def read_hardware(name: str) -> Target:
    """This machine as the doctor measured it (now, where it never did), or an entry of the catalogue."""
    from twostroke.planner.target import here_target, named_target

    if name.strip().lower() not in THIS:
        return named_target(name)
    from twostroke.env import read_machine
    from twostroke.planner.doctor.machine import ThisMachine

    with step_notes() as note:
        calibration = ThisMachine.read().kept_or_measured(note)
    return here_target(calibration, read_machine().available_bytes)


def read_fleet(options: dict[str, Any], setup: ReplicaSetup) -> FleetPlan:
    """Of the fleet flags. Raises ConfigError."""
    from twostroke.sim.fleet import FleetPlan
    from twostroke.sim.transfer import Link

    link = Link(options["link"])
    return FleetPlan(setup, options["replicas"], options["decoders"], link, _autoscale(options))


def _autoscale(options: dict[str, Any]) -> Autoscale | None:
    from twostroke.sim.autoscale import Autoscale

    start_s, patience_s = options["start_time"], options["patience"]
    if options["autoscale"] is None:
        for name, value in (("--start-time", start_s), ("--patience", patience_s)):
            if value is not None:
                raise ConfigError(
                    f"{name} belongs to --autoscale.",
                    why="A fixed number of replicas neither start nor end.",
                    fix=f"Add --autoscale LOW:HIGH, or leave {name} out.",
                )
        return None
    low, high = options["autoscale"]
    rule = Autoscale(low, high, options["per_replica"])
    return replace(
        rule,
        start_s=rule.start_s if start_s is None else start_s,
        patience_s=rule.patience_s if patience_s is None else patience_s,
    )
