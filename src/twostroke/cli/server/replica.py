"""`twostroke replica`: an engine that computes for fronts (HTTP servers) on other machines or in other processes."""

from __future__ import annotations

import faulthandler
import platform
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from twostroke.assembly.settings.engine_settings import ClusterSettings
from twostroke.assembly.settings.options import ADAPTER_OPTIONS, CLUSTER_OPTIONS, ENGINE_OPTIONS
from twostroke.cli.server.addresses import parse_address, require_secret
from twostroke.cli.server.reports import report_listening, reports
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags, print_json
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.cli.shared.garbage import lasting_heap
from twostroke.cli.shared.interrupt import finish_undisturbed
from twostroke.cli.shared.progress import progress_bar
from twostroke.distributed.wire.frames import ReplicaRole


@dataclass(frozen=True)
class ReplicaFlags:
    """The flags of where a replica listens, and of its name and role. *_fd: descriptors that another process has
    opened."""

    listen: str = flag(
        "--listen", default="127.0.0.1:8101", show_default=True, help="Address for fronts, HOST:PORT."
    )
    name: str | None = flag(
        "--name", default=None, help="Its name among the replicas; without one, host and port."
    )
    role: ReplicaRole = flag(
        "--role",
        type=click.Choice(["both", "prefill", "decode", "encode"]),
        default="both",
        show_default=True,
        help="What it computes: whole answers, prompts whose answers go on at another replica, such answers, or "
        "encodes of images for other replicas. For encodes it loads the encoder alone.",
    )
    listen_fd: int | None = flag("--listen-fd", type=int, default=None, hidden=True)
    report_fd: int | None = flag("--report-fd", type=int, default=None, hidden=True)


@click.command(cls=ExampleCommand, example="twostroke replica meta-llama/Llama-3.2-1B-Instruct --listen 127.0.0.1:8101")
@click.argument("model", default="spark")
@option_flags(ENGINE_OPTIONS + ADAPTER_OPTIONS + CLUSTER_OPTIONS)
@taking(ReplicaFlags)
@click.option("--json", "as_json", is_flag=True, help="Print the start-up facts as one JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def command(model: str, asked: ReplicaFlags, as_json: bool, verbose: bool, **options: Any) -> None:
    """Load MODEL and compute for fronts (`twostroke front`). It does not serve HTTP."""
    from twostroke.assembly.machine.near_memory import keep_memory_near
    from twostroke.assembly.processes.replica import ReplicaEndpoint, build_replica
    from twostroke.assembly.settings.env import read_machine
    from twostroke.server.process.listening import bind
    from twostroke.server.serve import short_turns

    faulthandler.enable()  # a crash in native code then prints where it happened
    keep_memory_near(read_machine().topology)

    def say(text: str) -> None:
        click.echo(f"replica: {text}", err=True)

    with clear_errors(verbose):
        secret = require_secret(options)
        host, port = parse_address(asked.listen, secret)
        listener = bind(host, port) if asked.listen_fd is None else socket.socket(fileno=asked.listen_fd)
        options.pop(ClusterSettings.cluster_secret.name)
        bound_host, bound_port = listener.getsockname()[:2]
        own_name = asked.name or f"{platform.node()}:{bound_port}"
        with listener, progress_bar("load") as shown, reports(asked.report_fd, shown) as progress:
            endpoint = ReplicaEndpoint(listener, own_name, secret, asked.role)
            built = build_replica(model, options, endpoint, say, progress)
            facts = {"listen": f"{bound_host}:{bound_port}", **built.facts}
            if as_json:
                print_json(facts)
            else:
                click.echo(
                    f"{facts['name']}: {facts['model']}, {facts['weights']} weights, {facts['threads']} threads, "
                    f"{facts['cpu_level']} kernels; listens on {facts['listen']} for fronts{encoder_words(facts)}"
                )
            report_listening(asked.report_fd)
            signal.signal(signal.SIGTERM, lambda *_: built.replica.drain())
            try:
                with built.heart, short_turns(), lasting_heap():
                    built.replica.serve()
            finally:
                finish_undisturbed()


def encoder_words(facts: Mapping[str, Any]) -> str:
    """Returns the memory of a replica that has loaded only an encoder, in words; empty for other replicas."""
    if facts["role"] != "encode":
        return ""
    names = ("weight_bytes", "buffer_bytes", "image_cache")
    weights, buffers, rows = (f"{facts[name] / 1e6:,.1f} MB" for name in names)
    return f"\nThe encoder of images alone: weights {weights}, buffers {buffers}, image rows up to {rows}"
