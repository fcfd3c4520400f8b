"""Flags of the machine on which a simulation runs, and the functions that read them."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.assembly.settings.option_values import parse_bytes
from twostroke.cli.bench.load_flags import count_flag, time_flag
from twostroke.cli.shared.division_flags import DivisionFlags, divided_target, require_hardware
from twostroke.cli.shared.flag_fields import flags_of, taken
from twostroke.cli.shared.readings import FORMAT, FORMAT_HELP, KV_FORMAT, bytes_per_s, reading
from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.lab.planner.ask import Ask
    from twostroke.lab.planner.model_config import PlannedModel
    from twostroke.lab.planner.target import Target
    from twostroke.lab.sim.disk import SimulatedDisk
    from twostroke.lab.sim.fleet.autoscale import Autoscale
    from twostroke.lab.sim.fleet.fleet import FleetPlan
    from twostroke.lab.sim.images import SimulatedImages
    from twostroke.lab.sim.setup import ReplicaSetup
    from twostroke.models.common.divided import ParallelPlan


COPY_BYTES = 2
"""The bytes of memory traffic for each byte of a page that is copied on its way to or from a disk: one read and one
written."""


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
        "--hardware",
        metavar="NAME",
        default="this",
        help="A name of the catalogue, 4xNAME, or this machine [default: this].",
    ),
    click.option("--weights", metavar="FORMAT", callback=FORMAT, default=None, help=f"{FORMAT_HELP}."),
    click.option("--kv-format", metavar="FORMAT", callback=KV_FORMAT, default=None, help="f32, bf16, int8 or int4."),
    count_flag("--context", "Longest sequence [default: the model's, 32k at most]."),
    count_flag(
        "--max-step-tokens",
        "Rows of each step [default: 512, 2048 on a GPU; fewer next to streams].",
    ),
    count_flag("--max-sequences", "Sequences of a step [default: 64]."),
    click.option(
        "--kv-memory", metavar="BYTES", callback=reading(parse_bytes), default=None, help="Size of a replica's KV pool."
    ),
    *flags_of(DivisionFlags),
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
        help="Split pools: --replicas read prompts, and COUNT others decode [default: 0, not split].",
    ),
    click.option(
        "--encoders",
        type=click.IntRange(0),
        default=0,
        help="COUNT others encode the images of --image, as `replica --role encode` does [default: 0].",
    ),
    click.option(
        "--link",
        metavar="RATE",
        callback=reading(bytes_per_s),
        default="400Gbit/s",
        help="Rate of each replica's link, for K and V and image rows between pools [default: 400Gbit/s].",
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


def _images(
    options: dict[str, Any], found: PlannedModel, ask: Ask, target: Target, staged: bool
) -> tuple[SimulatedImages, int] | None:
    """Returns the images that each simulated prompt has, and the memory of their encoder in bytes; None where --image
    is not given. staged: whether stages (pipeline parallelism) are simulated. Raises ConfigError."""
    texts = options.get("images") or ()
    if not texts and options.get("encoder_weights"):
        raise ConfigError("--encoder-weights is not possible without --image.", fix="Leave it out.")
    if not texts:
        return None
    from twostroke.assembly.images.encoder_format import AS_THE_MODEL, EncoderFormat
    from twostroke.lab.planner.images import find_sight, with_images
    from twostroke.lab.sim.images import SimulatedImages

    if staged:
        raise ConfigError("Images are not simulated with stages.", fix="Leave one of the two out.")
    form = EncoderFormat.next_to(ask.weights, options.get("encoder_weights") or AS_THE_MODEL)
    sight = find_sight(found.source, found.spec, found.folder or Path(), form, "--image")
    made = with_images(sight, texts, ask, target.machine, found.spec.longest_context)
    if sight is None or not made:
        return None
    rows = tuple(count for image in made for count in image.rows)
    tokens = sum(image.tokens for image in made)
    return SimulatedImages(rows, tokens, sight.cost(target.machine), sight.row_bytes), sight.num_bytes


def _disk(options: dict[str, Any], target: Target, setup: ReplicaSetup, divided: bool) -> SimulatedDisk | None:
    """Returns the simulated disk that keeps pages of prompts; None without one. Raises ConfigError where an engine
    cannot keep any."""
    from twostroke.lab.sim.disk import SimulatedDisk

    if not options.get("kv_disk"):
        return None
    for unfit, what in (
        (divided, "A model that is divided among processes"),
        (target.is_gpu, f"A model on a device, such as {target.name},"),
        (bool(options.get("decoders")), "A fleet with --decoders"),
    ):
        if unfit:
            raise ConfigError(f"{what} keeps no pages on a disk.", fix="Leave --kv-disk out.")
    rates = (options["disk_read"], options["disk_write"], target.read_bytes_per_s / COPY_BYTES)
    return SimulatedDisk(options["kv_disk"], *rates, *setup.part_bytes)


def read_setup(options: dict[str, Any]) -> tuple[str, dict[str, Any], ReplicaSetup]:
    """Returns the title of a simulation, its settings as a report shows them, and the setup of one replica. Raises
    ConfigError, ModelError, OutOfMemory."""
    from twostroke.engine.scheduler.limits.gap_limiter import GapRule
    from twostroke.lab.planner.adapted import with_places
    from twostroke.lab.planner.ask import make_ask
    from twostroke.lab.planner.model_config import read_model
    from twostroke.lab.sim.setup import Sizes, replica_setup

    require_hardware(options["hardware"])
    found = read_model(options["model"], options["revision"])
    target, divided = divided_target(taken(DivisionFlags, options), options["hardware"], found.spec)
    adapters, rank = options["adapters"], options["adapter_rank"]
    if adapters and divided is not None:
        raise ConfigError("Adapters are not simulated with ranks or stages.", fix="Leave one of the two out.")
    spec = with_places(found.spec, adapters, rank)
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
    images = _images(options, found, ask, target, divided is not None and divided.division.plans > 1)
    memory_bytes = target.memory_bytes - (0 if images is None else images[1])
    setup = replica_setup(spec, ask.weights, ask.kv_kind, target.machine, memory_bytes, sizes, divided)
    disk = _disk(options, target, setup, divided is not None)
    setup = replace(setup, adapters=adapters, images=None if images is None else images[0], disk=disk)
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
    if disk is not None:
        settings |= {"kv_disk": disk.limit_bytes, "disk_read": disk.read_rate, "disk_write": disk.write_rate}
    if adapters:
        settings |= {"adapters": adapters, "adapter_rank": rank}
    if divided is not None:
        settings |= {"division": asdict(divided.division), "link": asdict(divided.link)}
    title = (
        f"{options['model']} ({ask.weights} weights, {ask.kv_format} K and V) on {where(target, divided)}: room for "
        f"{setup.kv_tokens:,} tokens of K and V, {sequences} sequences and {step_tokens} rows a step"
    )
    return title, settings, setup


def where(target: Target, divided: ParallelPlan | None) -> str:
    """Returns the hardware of a replica, in words."""
    if divided is None:
        return target.title
    division, link = divided.division, divided.link
    return (
        f"{division.count} {division.noun}s, each on {target.title}, {1e6 * link.meeting_s:,.3g} us a meeting and "
        f"{link.bytes_per_s / 1e9:,.3g} GB/s ({link.source}; all times are predicted)"
    )


def read_fleet(options: dict[str, Any], setup: ReplicaSetup) -> FleetPlan:
    """Returns the fleet that the fleet flags describe. Raises ConfigError."""
    from twostroke.lab.sim.fleet.fleet import FleetPlan
    from twostroke.lab.sim.fleet.transfer import Link

    link, encoders = Link(options["link"]), options["encoders"]
    if encoders and setup.images is None:
        raise ConfigError("--encoders belongs to --image.", why="Nothing else is encoded.", fix="Give --image a size.")
    return FleetPlan(setup, options["replicas"], options["decoders"], link, _autoscale(options), encoders)


def _autoscale(options: dict[str, Any]) -> Autoscale | None:
    from twostroke.lab.sim.fleet.autoscale import Autoscale

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
