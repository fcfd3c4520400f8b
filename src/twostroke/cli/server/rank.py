"""`twostroke rank`: holds a part of a model that another process leads, on this machine or on another one."""

from __future__ import annotations

import faulthandler
import sys
from typing import Any

import click

from twostroke.assembly.settings.engine_settings import CpuSettings, DiskSettings, ModelSettings
from twostroke.assembly.settings.option import Option
from twostroke.assembly.settings.options import CLUSTER_OPTIONS
from twostroke.cli.server.addresses import parse_address, require_secret
from twostroke.cli.shared.command import ExampleCommand, clear_errors, exit_code, option_flags, print_json
from twostroke.types.errors import TwostrokeError

OWN: tuple[Option[Any], ...] = (
    *(ModelSettings.revision, CpuSettings.threads, CpuSettings.cpu_level),
    *(DiskSettings.cache, DiskSettings.cache_limit),
)


@click.command(cls=ExampleCommand, example="twostroke rank meta-llama/Llama-3.1-8B-Instruct --listen 10.0.0.6:8201")
@click.argument("model", default="spark")
@option_flags(OWN + CLUSTER_OPTIONS)
@click.option("--listen", default="127.0.0.1:8201", show_default=True, help="Address for the leader, HOST:PORT.")
@click.option("--line-fd", type=int, default=None, hidden=True)
@click.option("--memory-fd", type=int, default=None, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print where it listens as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def command(
    model: str,
    listen: str,
    line_fd: int | None,
    memory_fd: int | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Hold a part of MODEL for a leader (`twostroke serve --tensor-parallel 2 --rank-addresses HOST:PORT`)."""
    from twostroke.assembly.machine.near_memory import keep_memory_near
    from twostroke.assembly.processes.member import inherited
    from twostroke.assembly.settings.env import read_machine

    faulthandler.enable()  # a crash in native code then prints where it happened
    keep_memory_near(read_machine().topology)
    with clear_errors(verbose):
        secret = require_secret(options)
        own = {name: value for name, value in options.items() if name != "cluster_secret" and value is not None}
        if line_fd is not None and memory_fd is not None:
            sys.exit(_follow(model, own, inherited(line_fd, memory_fd)))
        _listen(model, own, parse_address(listen, secret), secret, as_json)


def _listen(model: str, own: dict[str, Any], address: tuple[str, int], secret: str | None, as_json: bool) -> None:
    """Serves one group after the other, so that a leader that starts again finds this rank waiting."""
    from twostroke.assembly.processes.member import called
    from twostroke.distributed.cluster.link import secret_key
    from twostroke.server.process.listening import bind

    with bind(*address) as listener:
        host, port = listener.getsockname()[:2]
        if as_json:
            print_json({"listen": f"{host}:{port}", "model": model})
        else:
            click.echo(f"rank of {model}: listens on {host}:{port} for its leader")
        while True:
            try:
                meeting = called(listener, secret_key(secret), _say)
                _follow(model, own, meeting)
            except OSError as error:  # RankLineLost is an OSError
                _say(f"a group broke off: {error}")


def _follow(model: str, own: dict[str, Any], meeting: Any) -> int:
    """Runs until the leader ends, and returns the exit code. An error is reported to the leader."""
    from twostroke.assembly.processes.member import follow
    from twostroke.distributed.ranks.frames import RankFailed

    try:
        follow(model, own, meeting, _say)
        return 0
    except TwostrokeError as error:
        failed = RankFailed(str(error), exit_code(error))
        _tell(meeting, failed)
        return failed.code
    except (ValueError, LookupError) as error:
        _tell(meeting, RankFailed(f"the leader's frames make no sense: {error}", 1))
        return 1
    finally:
        meeting.close()


def _tell(meeting: Any, failed: Any) -> None:
    from twostroke.distributed.ranks.line import RankLineLost

    try:
        meeting.line.send(failed)
    except RankLineLost:
        _say(failed.text)


def _say(text: str) -> None:
    click.echo(f"rank: {text}", err=True)
