"""The `twostroke` command: a table of verbs, each loaded when it is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from twostroke import __version__
from twostroke.assembly.settings.env import address_space_bytes, settle_home
from twostroke.cli.shared.command import (
    SuggestingGroup,
    end_with_output_problem,
    exit_code,
    print_error,
    require_addresses,
    require_files,
)
from twostroke.cli.shared.shell_script import VERB, script_command
from twostroke.cli.shared.streams import checked_arguments, in_utf8, open_missing_streams, prepare_streams
from twostroke.system import here
from twostroke.types.errors import BackendError, InvalidRequest, OutOfMemory

VERBS: dict[str, tuple[str, str]] = {
    "serve": ("twostroke.cli.server.serve", "Serve a model over HTTP with the OpenAI API."),
    "front": ("twostroke.cli.server.front", "Serve a model over HTTP from replicas that run elsewhere."),
    "replica": ("twostroke.cli.server.replica", "Compute for fronts, without HTTP."),
    "cluster": ("twostroke.cli.server.cluster", "Start replicas with Ray; say which replicas answer."),
    "rank": ("twostroke.cli.server.rank", "Hold a part of a model for a leader elsewhere."),
    "generate": ("twostroke.cli.generate", "Continue or answer one prompt, streaming."),
    "chat": ("twostroke.cli.chat", "Talk with a model in the terminal."),
    "bench": ("twostroke.cli.bench.all", "Measure prefill and decode on this machine."),
    "run": ("twostroke.cli.store.run", "Answer or chat with a model, downloaded where it is not here."),
    "pull": ("twostroke.cli.pull", "Download a model from the hub."),
    "show": ("twostroke.cli.store.show", "What a model on this machine is, and whether it fits."),
    "list": ("twostroke.cli.store.list", "Show the models on this machine."),
    "rm": ("twostroke.cli.store.rm", "Remove a model from this machine."),
    "alias": ("twostroke.cli.store.alias", "Names of one's own for models."),
    "ps": ("twostroke.cli.store.ps", "Show the models that running servers have loaded."),
    "stop": ("twostroke.cli.store.stop", "End servers that this user has started."),
    "quantize": ("twostroke.cli.quantize", "Write a model in fewer bits, calibrated on a text."),
    "doctor": ("twostroke.cli.doctor", "Measure this machine, and what it means for a model."),
    "plan": ("twostroke.cli.plan", "What a model will do and cost on a machine, from its config.json."),
    "explain": ("twostroke.cli.explain", "Say why a request was slow to start or to stream, and what would help."),
    "top": ("twostroke.cli.server.top", "Watch a running server: steps, requests, latency, KV cache."),
    "simulate": ("twostroke.cli.simulate", "Run a workload on any machine under a virtual clock."),
    "trace": ("twostroke.cli.trace", "What step records hold; a Chrome trace of them for Perfetto."),
    "cache": ("twostroke.cli.cache", "List, verify or remove packed weights kept on disk."),
    "kernels": ("twostroke.cli.kernels", "Which kernel runs for which op, format and number of rows."),
    "config": ("twostroke.cli.config", "Print every resolved setting with its reason."),
}


SYNONYMS = {
    "info": "show",
    "inspect": "show",
    "kill": "stop",
    "name": "alias",
    "complete": "generate",
    "completions": "generate",
    "start": "serve",
    "server": "serve",
    "ls": "list",
    "models": "list",
    "cp": "alias",
    "copy": "alias",
    "create": "alias",
    "unload": "stop",
    "delete": "rm",
    "remove": "rm",
    "download": "pull",
    "get": "pull",
    "install": "pull",
    "benchmark": "bench",
    "compare": "bench compare",
    "peers": "bench peers",
    "sweep": "bench sweep",
    "predict": "bench predict",
    "check": "doctor",
    "convert": "quantize",
    "settings": "config",
    "monitor": "top",
    "why": "explain",
}
"""Names that a user may try, each with the verb that is suggested: names of verbs in other programs, and verbs of a
group without the group's name."""


class LazyGroup(SuggestingGroup):
    """Imports a verb's module only when that verb runs, so that --help stays quick."""

    synonyms = SYNONYMS

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        """Runs a command as click does. Closed or full standard streams, and arguments that are not text, give a clear
        error."""
        if args is None:
            in_utf8()
        settle_home()
        open_missing_streams()
        prepare_streams()
        try:
            checked_arguments(sys.argv[1:] if args is None else args)
            return super().main(args, *rest, **named)
        except (BackendError, InvalidRequest, OutOfMemory) as error:
            print_error(error)
            sys.exit(exit_code(error))
        finally:
            end_with_output_problem()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the verbs, in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads one verb. Returns None for an unknown name."""
        if cmd_name not in VERBS:
            return None
        require_addresses(address_space_bytes())
        require_files(here.most_open_files())
        command: click.Command = importlib.import_module(VERBS[cmd_name][0]).command
        return command

    def suggested(self, args: list[str], known: list[str]) -> str:
        """Returns the command line to suggest. For `completion` it is the one that prints the shell's script."""
        return script_command(args[1:]) if args[0] == VERB else super().suggested(args, known)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes examples, then the verbs from the table, without importing any verb."""
        formatter.write("Example: twostroke serve\n         twostroke generate 'What is prefill?'\n\n")
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text("An LLM inference engine that treats prefill and decode as two workloads.")
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])
        self.format_options_only(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_text(
                "0 done; 1 unexpected failure; 2 wrong usage or request; 3 model unusable; 4 does not fit in memory; "
                "5 native kernels missing or refused; 6 engine stopped; 130 interrupted."
            )

    def format_options_only(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the group's own options, without click's list of commands."""
        records = [record for p in self.get_params(ctx) if (record := p.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(records)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="twostroke")
def main() -> None:
    """An LLM inference engine that treats prefill and decode as two workloads."""
