"""`twostroke chat`: a conversation in the terminal.

Commands in it: /stats (TTFT and ITL of the last answer), /explain (where its time went), /image FILE, /reset, /system
TEXT, /help, /exit. A line that ends in a backslash continues on the next line. Where the model reads images, the path
of an image file in a message attaches that image.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from twostroke.assembly.settings.options import ENGINE_OPTIONS
from twostroke.assembly.settings.server_settings import TalkSettings
from twostroke.cli.generate import explained, timing_line
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags
from twostroke.cli.shared.garbage import resume
from twostroke.cli.shared.images import image_part, message_of, paths_in
from twostroke.cli.shared.progress import progress_bar
from twostroke.cli.shared.sampling_flags import pop_sampling, sampling_flags, take_sampling
from twostroke.cli.shared.streams import as_text
from twostroke.types.errors import InvalidRequest
from twostroke.types.output import Delta, Timings

HELP = (
    "/stats  TTFT and ITL of the last answer\n/explain  what its time went to\n"
    "/image FILE  show it with the next line\n/reset  forget the conversation\n/system TEXT\n/help\n/exit"
)


@click.command(cls=ExampleCommand, example="twostroke chat --temperature 0.7")
@click.argument("model", default="spark")
@click.option("--system", default=None, help="System message.")
@click.option("--image", "image_files", multiple=True, help="A file or URL shown with the first line; may be repeated.")
@sampling_flags
@option_flags((*ENGINE_OPTIONS, TalkSettings.chat_template))
@click.option("--explain", is_flag=True, help="Say after each answer what its time went to, and what would help.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line: an answer, a note or an error.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def command(
    model: str,
    system: str | None,
    image_files: tuple[str, ...],
    explain: bool,
    as_json: bool,
    verbose: bool,
    **values: Any,
) -> None:
    """Talk with MODEL. History is kept; /help lists the commands; Ctrl-C stops an answer, Ctrl-D ends."""
    with clear_errors(verbose):
        sampling = pop_sampling(values)
        from twostroke.llm import LLM

        with progress_bar("load") as progress:
            llm = LLM(model, progress=progress, **values)
        resume()
        with llm:
            printer = ChatJson() if as_json else ChatText()
            params, shown = take_sampling(sampling, llm.sampling_defaults), [image_part(name) for name in image_files]
            converse(Conversation(llm, params, system, printer, images=shown), explain)


def converse(conversation: Conversation, explain: bool = False) -> None:
    """Answers line after line until the input ends. explain: whether to print after each answer where its time went."""
    _load_line_editing()
    printer = conversation.printer
    printer.begun(conversation.llm.model_name)
    while (line := _read_line(printer)) is not None:
        if line.strip() and not conversation.handle(line.strip()):
            return
        if explain and line.strip() and not line.startswith("/"):
            printer.note(conversation.explanation())


class ChatText:
    """Prints a conversation as text for people, piece by piece."""

    def begun(self, model_name: str) -> None:
        """Prints the model's name when the model is loaded."""
        click.echo(f"{model_name}; /help for commands.")

    def note(self, text: str) -> None:
        """Prints the output of a command of the conversation."""
        click.echo(text)

    def problem(self, text: str) -> None:
        """Prints an error about a line that got no answer."""
        click.echo(f"error: {text}", err=True)

    def piece(self, text: str) -> None:
        """Prints the next words of an answer."""
        click.echo(text, nl=False)

    def answered(self, text: str, last: Delta | None, stopped: bool) -> None:
        """Ends an answer that is whole, or that Ctrl-C stopped."""
        click.echo(" [stopped]" if stopped else "")


class ChatJson:
    """Prints what ChatText prints, but for programs: each line is one JSON document."""

    def begun(self, model_name: str) -> None:
        """Prints nothing: each answer is a document of its own."""

    def note(self, text: str) -> None:
        """Prints the output of a command of the conversation, such as /stats."""
        self._line({"note": text})

    def problem(self, text: str) -> None:
        """Prints an error about a line that got no answer."""
        self._line({"error": text})

    def piece(self, text: str) -> None:
        """Prints nothing: the whole answer is printed at its end."""

    def answered(self, text: str, last: Delta | None, stopped: bool) -> None:
        """Prints an answer that is whole, or that Ctrl-C stopped, with its counts and times."""
        reason = last.finish_reason.value if last is not None and last.finish_reason is not None else None
        timings = None if last is None else last.timings
        self._line(
            {
                "answer": text,
                "finish_reason": "stopped" if stopped else reason,
                "num_output_tokens": 0 if last is None else last.num_output_tokens,
                "num_cached_tokens": 0 if last is None else last.num_cached_tokens,
                "ttft_s": None if timings is None else timings.ttft_s,
                "e2e_s": None if timings is None else timings.e2e_s,
            }
        )

    def _line(self, value: dict[str, Any]) -> None:
        click.echo(json.dumps(value))


def _load_line_editing() -> None:
    """Loads readline where the platform has it, so that input() has arrow keys and a history."""
    try:
        import readline  # noqa: F401  (importing it is what switches it on)
    except ImportError:
        return


def _read_line(printer: ChatText | ChatJson) -> str | None:
    """Returns one message, continued over lines that end in a backslash; None at the end of the input.

    The first Ctrl-C drops the line and ends nothing, because it may have been meant for an answer that had just ended;
    a second one ends the conversation."""
    parts: list[str] = []
    dropped = False
    while True:
        try:
            part = as_text(input("> " if not parts else ". ") if sys.stdin.isatty() else input(), "The line")
        except InvalidRequest as error:
            printer.problem(str(error))
            parts.clear()
            continue
        except EOFError:
            return "\n".join(parts) if parts else None
        except KeyboardInterrupt:
            click.echo(err=True)
            if dropped or not sys.stdin.isatty():
                return None
            click.echo("Ctrl-D or /exit ends; Ctrl-C once more does, too.", err=True)
            dropped = True
            parts.clear()
            continue
        if not part.endswith("\\"):
            return "\n".join([*parts, part])
        parts.append(part[:-1])


@dataclass
class Conversation:
    """The messages so far and the figures of the last answer. images: the images that the next message will have."""

    llm: Any
    params: Any
    system: str | None
    printer: ChatText | ChatJson = field(default_factory=ChatText)
    messages: list[dict[str, Any]] = field(default_factory=list)
    images: list[dict[str, Any]] = field(default_factory=list)
    last: tuple[Timings, int, int, int] | None = None
    last_id: str = ""

    def handle(self, line: str) -> bool:
        """Handles one line of the user. Returns False where the conversation ends."""
        line, paths = paths_in(line) if self.llm.sees and not line.startswith("/image ") else (line, [])
        if paths and (not self._shown(paths) or not line):
            return True
        name, _, rest = line.partition(" ")
        if name in ("/exit", "/quit", "/bye"):
            return False
        if name == "/stats":
            self.printer.note(self.stats())
        elif name == "/explain":
            self.printer.note(self.explanation())
        elif name == "/image" and rest.strip():
            self._shown([rest.strip().strip("\"'")])
        elif name in ("/reset", "/clear"):
            self.messages.clear()
            self.images.clear()
            self.printer.note("Forgotten.")
        elif name == "/system":
            self.system = rest or None
            self.printer.note("System message set." if rest else "No system message.")
        elif name.startswith("/") and not paths:
            self.printer.note(HELP if name in ("/help", "/?") else f"There is no command {name}.\n{HELP}")
        else:
            self._answer(line)
        return True

    def stats(self) -> str:
        """Returns TTFT and ITL of the last answer, in words."""
        if self.last is None:
            return "No answer yet."
        timings, num_prompt, num_output, num_cached = self.last
        return f"{timing_line(timings, num_prompt, num_output)}; {num_cached} prompt tokens from the cache"

    def explanation(self) -> str:
        """Returns where the time of the last answer went, and what would help."""
        return explained(self.llm, self.last_id) if self.last_id else "No answer yet."

    def _shown(self, names: Sequence[str]) -> bool:
        """Adds the images of these files or URLs to the next message, and prints that. Returns False where one of them
        cannot be read."""
        try:
            self.images += [image_part(name) for name in names]
        except InvalidRequest as error:
            self.printer.problem(str(error))
            return False
        self.printer.note("".join(f"Added image {name}. " for name in names).strip())
        return True

    def _answer(self, line: str) -> None:
        messages = [*self.messages, message_of(line, self.images)]
        self.images = []
        text, tokens, delta, stopped = "", 0, None, False
        try:
            prompt = self.llm.chat_prompt(self._with_system(messages))
            for delta in self.llm.stream(prompt, self.params):
                self.printer.piece(delta.text)
                text += delta.text
                tokens = delta.num_output_tokens
        except InvalidRequest as error:
            self.printer.problem(f"{error}\n/reset starts anew.")
            return
        except KeyboardInterrupt:
            stopped = True
        self.printer.answered(text, delta, stopped)
        if delta is not None and delta.error is not None:
            self.printer.problem(delta.error)
        self.messages = [*messages, {"role": "assistant", "content": text}]
        if delta is not None and delta.timings is not None:
            length = len(prompt if isinstance(prompt, list) else prompt.token_ids)
            self.last = (delta.timings, length, tokens, delta.num_cached_tokens)
            self.last_id = delta.request_id

    def _with_system(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return messages if self.system is None else [{"role": "system", "content": self.system}, *messages]
