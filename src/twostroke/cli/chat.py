"""`twostroke chat`: a conversation in the terminal.

Commands in it: /stats (TTFT and ITL of the last answer), /explain (what its time went to), /reset, /system TEXT, /help,
/exit. A line that ends in a backslash goes on in the next.

Knows: LLM, a list of messages.
Must not know: scheduler, cache.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click

from twostroke.cli.command import ExampleCommand, clear_errors, option_flags
from twostroke.cli.generate import explained, timing_line
from twostroke.cli.progress import progress_bar
from twostroke.cli.sampling_flags import pop_sampling, sampling_flags, take_sampling
from twostroke.options import ENGINE_OPTIONS
from twostroke.types.errors import InvalidRequest
from twostroke.types.output import Timings

HELP = (
    "/stats  TTFT and ITL of the last answer\n/explain  what its time went to\n/reset  forget the conversation\n"
    "/system TEXT\n/help\n/exit"
)


@click.command(cls=ExampleCommand, example="twostroke chat --temperature 0.7")
@click.argument("model", default="spark")
@click.option("--system", default=None, help="System message.")
@sampling_flags
@option_flags(ENGINE_OPTIONS)
@click.option("--explain", is_flag=True, help="Say after each answer what its time went to, and what would help.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def command(model: str, system: str | None, explain: bool, verbose: bool, **values: Any) -> None:
    """Talk with MODEL. History is kept; /help lists the commands; Ctrl-C stops an answer, Ctrl-D ends."""
    with clear_errors(verbose):
        sampling = pop_sampling(values)
        from twostroke.llm import LLM

        with progress_bar("load") as progress:
            llm = LLM(model, progress=progress, **values)
        with llm:
            _load_line_editing()
            conversation = Conversation(llm, take_sampling(sampling, llm.sampling_defaults), system)
            click.echo(f"{llm.model_name}; /help for commands.")
            while (line := _read_line()) is not None:
                if line.strip() and not conversation.handle(line.strip(), click.echo):
                    return
                if explain and line.strip() and not line.startswith("/"):
                    click.echo(conversation.explanation())


def _load_line_editing() -> None:
    """Arrow keys and history for input(), where the platform has readline."""
    try:
        import readline  # noqa: F401  (importing it is what switches it on)
    except ImportError:
        return


def _read_line() -> str | None:
    """One message, continued over lines that end in a backslash; None at the end of the input."""
    parts: list[str] = []
    while True:
        try:
            part = input("> " if not parts else ". ") if sys.stdin.isatty() else input()
        except EOFError:
            return "\n".join(parts) if parts else None
        except KeyboardInterrupt:
            click.echo()
            return None
        if not part.endswith("\\"):
            return "\n".join([*parts, part])
        parts.append(part[:-1])


@dataclass
class Conversation:
    """Messages so far and the last answer's figures."""

    llm: Any
    params: Any
    system: str | None
    messages: list[dict[str, str]] = field(default_factory=list)
    last: tuple[Timings, int, int, int] | None = None
    last_id: str = ""

    def handle(self, line: str, echo: Callable[..., Any]) -> bool:
        """One line of the user; False where the conversation ends."""
        name, _, rest = line.partition(" ")
        if name in ("/exit", "/quit"):
            return False
        if name == "/stats":
            echo(self.stats())
        elif name == "/explain":
            echo(self.explanation())
        elif name == "/reset":
            self.messages.clear()
            echo("Forgotten.")
        elif name == "/system":
            self.system = rest or None
            echo("System message set." if rest else "No system message.")
        elif name.startswith("/"):
            echo(HELP if name == "/help" else f"There is no command {name}.\n{HELP}")
        else:
            self._answer(line, echo)
        return True

    def stats(self) -> str:
        """TTFT and ITL of the last answer."""
        if self.last is None:
            return "No answer yet."
        timings, num_prompt, num_output, num_cached = self.last
        return f"{timing_line(timings, num_prompt, num_output)}; {num_cached} prompt tokens from the cache"

    def explanation(self) -> str:
        """What the time of the last answer went to, and what would help."""
        return explained(self.llm, self.last_id) if self.last_id else "No answer yet."

    def _answer(self, line: str, echo: Callable[..., Any]) -> None:
        messages = [*self.messages, {"role": "user", "content": line}]
        text, tokens, delta = "", 0, None
        try:
            prompt = self.llm.messages_tokens(self._with_system(messages))
            for delta in self.llm.stream(prompt, self.params):
                echo(delta.text, nl=False)
                sys.stdout.flush()
                text += delta.text
                tokens = delta.num_output_tokens
        except InvalidRequest as error:
            echo(f"error: {error}\n/reset starts anew.", err=True)
            return
        except KeyboardInterrupt:
            echo(" [stopped]", nl=False)
        echo("")
        self.messages = [*messages, {"role": "assistant", "content": text}]
        if delta is not None and delta.timings is not None:
            self.last = (delta.timings, len(prompt), tokens, delta.num_cached_tokens)
            self.last_id = delta.request_id

    def _with_system(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        return messages if self.system is None else [{"role": "system", "content": self.system}, *messages]
