"""`twostroke run`: one verb from a name to an answer. It downloads a model that is not here. It uses a server that
already has the model, or computes in this process where there is none."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from twostroke.assembly.settings.engine_settings import ModelSettings
from twostroke.assembly.settings.options import ENGINE_OPTIONS
from twostroke.assembly.settings.server_settings import ListenSettings, TalkSettings
from twostroke.cli.chat import ChatJson, ChatText, Conversation, converse
from twostroke.cli.generate import prompt_of, stream_answer
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags, print_json
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.cli.shared.garbage import resume
from twostroke.cli.shared.images import image_part, paths_in
from twostroke.cli.shared.progress import progress_bar
from twostroke.cli.shared.sampling_flags import pop_sampling, sampling_flags, take_sampling
from twostroke.cli.shared.streams import as_text
from twostroke.cli.store.served_model import ServedModel
from twostroke.types.errors import InvalidRequest, ModelNotFound, TwostrokeError

OPTIONS = (*ENGINE_OPTIONS, TalkSettings.chat_template)


@dataclass(frozen=True)
class RunFlags:
    """The flags of `run`: what the prompt has before the text (system message, images), and which server or process
    answers."""

    system: str | None = flag("--system", default=None, help="System message.")
    image_files: tuple[str, ...] = flag(
        "--image", multiple=True, help="A file or URL before the text; may be repeated."
    )
    url: str | None = flag(
        "--url", default=None, help="Only this server; unix:PATH for a socket [default: one of this user's]."
    )
    api_key: str | None = flag(
        "--api-key", metavar="KEY", default=None, help="The server's API key [env TWOSTROKE_API_KEY]."
    )
    local: bool = flag("--local", is_flag=True, help="Compute in this process, also where a server has the model.")


@click.command(cls=ExampleCommand, example='twostroke run llama3.2:1b "What is prefill?"')
@click.argument("model")
@click.argument("prompt", required=False)
@taking(RunFlags)
@sampling_flags
@option_flags(OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one document, or one for each answer of a chat.")
@click.option("-v", "--verbose", is_flag=True, help="Show timings, and tracebacks.")
def command(model: str, prompt: str | None, asked: RunFlags, as_json: bool, verbose: bool, **values: Any) -> None:
    """Answer PROMPT, or start a chat if there is no PROMPT. Text on standard input is the prompt, or is appended to
    PROMPT. A model of the hub is downloaded first if it is not on this machine (see `pull`). The options of the engine
    apply to this process."""
    with clear_errors(verbose):
        text = _text(prompt)
        sampling = pop_sampling(values)
        options = {name: value for name, value in values.items() if value not in (None, ())}
        with _answering(model, options, asked) as llm:
            params = take_sampling(sampling, llm.sampling_defaults)
            if text is None:
                shown = [image_part(name) for name in asked.image_files]
                converse(Conversation(llm, params, asked.system, ChatJson() if as_json else ChatText(), images=shown))
                return
            text, named = paths_in(text) if llm.sees else (text, [])
            made = prompt_of(llm, text, asked.system, [*asked.image_files, *named], raw=False)
            if as_json:
                print_json(_whole(llm, made, params))
            else:
                stream_answer(llm, made, params, verbose)


def _text(prompt: str | None) -> str | None:
    """Returns the text to be answered; None for a conversation. Raises InvalidRequest where it is empty."""
    piped = as_text(sys.stdin.read(), "Standard input") if _is_piped() else ""
    if prompt is None and not piped and sys.stdin.isatty():
        return None
    text = "\n\n".join(part for part in (prompt or "", piped) if part.strip())
    if not text:
        raise InvalidRequest("The prompt is empty.", fix='Give some text: twostroke run spark "What is prefill?"')
    return text


def _is_piped() -> bool:
    """Whether standard input is a pipe or a file, which ends."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


@contextlib.contextmanager
def _answering(model: str, options: dict[str, Any], asked: RunFlags) -> Iterator[Any]:
    """Yields the object that answers: a server that has the model, or an engine in this process. Raises TwostrokeError.
    """
    served = None if asked.local or (options and asked.url is None) else _served(model, asked.url, asked.api_key)
    if served is not None:
        resume()
        yield served
        return
    model = _bring(model, options.get(ModelSettings.revision.name))
    from twostroke.llm import LLM

    with progress_bar("load") as progress:
        llm = LLM(model, progress=progress, **options)
    resume()
    with llm:
        yield llm


def _served(model: str, url: str | None, api_key: str | None) -> ServedModel | None:
    """Returns the model on the server that was named, or on one of this user's servers that has it; None without one.
    """
    from twostroke.assembly.settings.env import asked_by_environment
    from twostroke.cli.shared.server_records import local_servers
    from twostroke.cli.store.local_servers import having, name_there

    api_key = api_key or asked_by_environment().get(ListenSettings.api_key.name)
    found = having(local_servers(), model)
    if url is not None:
        known = next((record for record in found if record.url == url.rstrip("/")), None)
        return ServedModel(url, model if known is None else name_there(known, model), api_key)
    for record in found:
        try:
            return ServedModel(record.url, name_there(record, model), api_key)
        except TwostrokeError as error:
            click.echo(f"The server at {record.url} is not asked: {error}", err=True)
    return None


def _bring(model: str, revision: str | None) -> str:
    """Downloads a model of the hub that is not on this machine. First prints facts about the model, and whether it
    fits.

    Returns the name with which the model is loaded. If `model` names no file and a file of it is on this machine, the
    result names that file. The hub might choose another file, which would be downloaded although nobody asked for it.
    """
    from twostroke.cli.store.facts import found_here, named_file
    from twostroke.cli.store.fetching import PullWish, bring, prospect_of

    with contextlib.suppress(ModelNotFound):
        return named_file(model, found_here(model, revision).path)
    wish = PullWish(model, revision, say=lambda text: click.echo(text, err=True))
    prospect = prospect_of(wish)
    if prospect.reference is not None:
        wish.say("\n".join(filter(None, (prospect.meaning(model), prospect.words()))))
    return named_file(model, bring(wish, prospect).path)


def _whole(llm: Any, prompt: Any, params: Any) -> dict[str, Any]:
    """Returns the whole answer as JSON values. The key `server` has the address of the server that computed it, or None
    for this process."""
    text, last = "", None
    for last in llm.stream(prompt, params):
        text += last.text
    served = isinstance(llm, ServedModel)
    ids = prompt if isinstance(prompt, list) else prompt.token_ids
    return {
        "model": llm.model_name,
        "server": llm.url if served else None,
        "text": text,
        "finish_reason": None if last is None or last.finish_reason is None else last.finish_reason.value,
        "num_prompt_tokens": llm.prompt_tokens if served else len(ids),
        "num_output_tokens": 0 if last is None else last.num_output_tokens,
        "error": None if last is None else last.error,
    }
