"""`twostroke replica`: an engine that computes for fronts on other machines or in other processes."""

from __future__ import annotations

import faulthandler
import platform
import signal
import socket
from typing import Any

import click

from twostroke.assembly.settings.engine_settings import ClusterSettings
from twostroke.assembly.settings.options import ADAPTER_OPTIONS, CLUSTER_OPTIONS, ENGINE_OPTIONS
from twostroke.cli.server.addresses import parse_address, require_secret
from twostroke.cli.server.reports import report_listening, reports
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags, print_json
from twostroke.cli.shared.interrupt import finish_undisturbed
from twostroke.cli.shared.progress import progress_bar
from twostroke.distributed.wire.frames import ReplicaRole


@click.command(cls=ExampleCommand, example="twostroke replica meta-llama/Llama-3.2-1B-Instruct --listen 127.0.0.1:8101")
@click.argument("model", default="spark")
@option_flags(ENGINE_OPTIONS + ADAPTER_OPTIONS + CLUSTER_OPTIONS)
@click.option("--listen", default="127.0.0.1:8101", show_default=True, help="Address for fronts, HOST:PORT.")
@click.option("--name", default=None, help="Its name among the replicas; without one, host and port.")
@click.option(
    "--role",
    type=click.Choice(["both", "prefill", "decode", "encode"]),
    default="both",
    show_default=True,
    help="What it computes: whole answers, prompts whose answers go on at another replica, such answers, or encodes of "
    "images for other replicas.",
)
@click.option("--listen-fd", type=int, default=None, hidden=True)
@click.option("--report-fd", type=int, default=None, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print the start-up facts as one JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def command(
    model: str,
    listen: str,
    name: str | None,
    role: ReplicaRole,
    listen_fd: int | None,
    report_fd: int | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Load MODEL and compute for fronts (`twostroke front`). It does not serve HTTP."""
    from twostroke.assembly.machine.near_memory import keep_memory_near
    from twostroke.assembly.replica import build_replica
    from twostroke.assembly.settings.env import read_machine
    from twostroke.server.serve import bind, short_turns

    faulthandler.enable()  # a crash in native code says where
    keep_memory_near(read_machine().topology)

    def say(text: str) -> None:
        click.echo(f"replica: {text}", err=True)

    with clear_errors(verbose):
        secret = require_secret(options)
        host, port = parse_address(listen, secret)
        listener = bind(host, port) if listen_fd is None else socket.socket(fileno=listen_fd)
        options.pop(ClusterSettings.cluster_secret.name)
        bound_host, bound_port = listener.getsockname()[:2]
        own_name = name or f"{platform.node()}:{bound_port}"
        with listener, progress_bar("load") as shown, reports(report_fd, shown) as progress:
            built = build_replica(model, options, listener, own_name, secret, say, progress, role)
            facts = {"listen": f"{bound_host}:{bound_port}", **built.facts}
            if as_json:
                print_json(facts)
            else:
                click.echo(
                    f"{facts['name']}: {facts['model']}, {facts['weights']} weights, {facts['threads']} threads, "
                    f"{facts['cpu_level']} kernels; listens on {facts['listen']} for fronts"
                )
            report_listening(report_fd)
            signal.signal(signal.SIGTERM, lambda *_: built.replica.drain())
            try:
                with built.heart, short_turns():
                    built.replica.serve()
            finally:
                finish_undisturbed()
