"""`twostroke generate`: one prompt in, text out, streamed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from twostroke.assembly.settings.options import ENGINE_OPTIONS
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags, print_json
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.cli.shared.garbage import resume
from twostroke.cli.shared.images import image_part, message_of
from twostroke.cli.shared.progress import progress_bar
from twostroke.cli.shared.sampling_flags import pop_sampling, sampling_flags, take_sampling
from twostroke.cli.shared.streams import as_text
from twostroke.types.errors import EngineStopped, InvalidRequest
from twostroke.types.output import GenerationOutput, Prompt


@dataclass(frozen=True)
class AskFlags:
    """The flags of the model that is asked, and of how the text becomes its prompt."""

    model: str = flag(
        "--model", default="spark", help="Folder, GGUF file, hub id, or the embedded 'spark' [default: spark]."
    )
    raw: bool = flag("--raw", is_flag=True, help="Continue the text as it stands, without the chat template.")
    system: str | None = flag("--system", default=None, help="System message for the chat template.")
    image_files: tuple[str, ...] = flag(
        "--image", multiple=True, help="A file that stands before the text; may be repeated."
    )
    logprobs: int | None = flag(
        "--logprobs", type=int, default=None, help="With --json: log probabilities and this many alternatives."
    )


@click.command(cls=ExampleCommand, example='twostroke generate "What is prefill?" --max-tokens 80')
@click.argument("prompt", required=False)
@taking(AskFlags)
@sampling_flags
@option_flags(ENGINE_OPTIONS)
@click.option("--explain", is_flag=True, help="Say afterwards what the time went to, and what would help.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end instead of streaming text.")
@click.option("-v", "--verbose", is_flag=True, help="Show timings, and tracebacks.")
def command(
    prompt: str | None, asked: AskFlags, explain: bool, as_json: bool, verbose: bool, **values: Any
) -> None:
    """Answer PROMPT, or the text on standard input. Ctrl-C stops it."""
    with clear_errors(verbose):
        text = prompt if prompt is not None else _read_stdin()
        if not text.strip():
            raise InvalidRequest("The prompt is empty.", fix='Give some text: twostroke generate "What is prefill?"')
        sampling = pop_sampling(values)
        from twostroke.llm import LLM

        with progress_bar("load") as progress:
            llm = LLM(asked.model, progress=progress, **values)
        resume()
        with llm:
            params = replace(take_sampling(sampling, llm.sampling_defaults), logprobs=asked.logprobs)
            made = prompt_of(llm, text, asked.system, asked.image_files, raw=asked.raw)
            if as_json:
                output = llm.generate([made], params)[0]
                found = {"explain": [each.as_json() for each in llm.explain(output.request_id)]} if explain else {}
                print_json({**output_json(output, llm.model_name), **found})
                return
            request_id = stream_answer(llm, made, params, verbose)
            if explain:
                click.echo("\n" + explained(llm, request_id))


def prompt_of(llm: Any, text: str, system: str | None, images: Sequence[str], *, raw: bool) -> Prompt | list[int]:
    """Returns the prompt for the model. Raises InvalidRequest for images together with --raw, with which a text is
    continued without a chat template."""
    if not images:
        ids: list[int] = llm.prompt_tokens(text) if raw or not llm.has_template else llm.chat_tokens(text, system)
        return ids
    if raw:
        raise InvalidRequest("--image and --raw cannot be together.", fix="Leave --raw out.")
    before = [] if system is None else [{"role": "system", "content": system}]
    made: Prompt = llm.chat_prompt([*before, message_of(text, [image_part(name) for name in images])])
    return made


def _read_stdin() -> str:
    """Returns all of standard input. Refuses a terminal, where no text would come."""
    if sys.stdin.isatty():
        raise InvalidRequest(
            "There is no prompt.", fix='Give one: twostroke generate "What is prefill?", or pipe text in.'
        )
    return as_text(sys.stdin.read(), "Standard input")


def explained(llm: Any, request_id: str) -> str:
    """Returns a text that tells what the time of each completion of this request went to."""
    from twostroke.cost.explain.explanation import words

    return "\n\n".join(words(each) for each in llm.explain(request_id))


def stream_answer(llm: Any, prompt: Prompt | list[int], params: Any, verbose: bool) -> str:
    """Prints the answer piece by piece, and returns its request id."""
    last = None
    tokens = 0
    for delta in llm.stream(prompt, params):
        click.echo(delta.text, nl=False)
        tokens = delta.num_output_tokens
        last = delta
    click.echo()
    if last is not None and last.error is not None:
        raise EngineStopped(last.error, why="The answer above is not whole.", fix="Ask again.")
    if verbose and last is not None and last.timings is not None:
        length = len(prompt if isinstance(prompt, list) else prompt.token_ids)
        click.echo(timing_line(last.timings, length, tokens), err=True)
    return "" if last is None else str(last.request_id)


def timing_line(timings: Any, num_prompt_tokens: int, num_output_tokens: int) -> str:
    """Returns TTFT and ITL in words."""
    itl_s = timings.mean_itl_s(num_output_tokens)
    speed = "" if itl_s is None else f", ITL {itl_s * 1e3:.2f} ms ({1 / max(itl_s, 1e-9):.0f} tok/s)"
    return f"{num_prompt_tokens} prompt tokens, TTFT {timings.ttft_s * 1e3:.1f} ms; {num_output_tokens} tokens{speed}"


def output_json(output: GenerationOutput, model: str) -> dict[str, Any]:
    """Returns the whole output as JSON values."""
    return {
        "model": model,
        "num_prompt_tokens": len(output.prompt_token_ids),
        "num_cached_tokens": output.num_cached_tokens,
        "completions": [
            {
                "index": c.index,
                "text": c.text,
                "token_ids": list(c.token_ids),
                "finish_reason": c.finish_reason.value,
                "stop_reason": c.stop_reason,
                "error": c.error,
                "logprobs": None
                if c.logprobs is None
                else [
                    {"token_id": p.token_id, "logprob": p.logprob, "top": [list(t) for t in p.top]} for p in c.logprobs
                ],
                "ttft_s": c.timings.ttft_s if c.timings else None,
                "mean_itl_s": c.timings.mean_itl_s(c.num_output_tokens) if c.timings else None,
                "e2e_s": c.timings.e2e_s if c.timings else None,
                "parts_s": c.timings.parts.by_name() if c.timings and c.timings.parts else None,
            }
            for c in output.completions
        ],
    }
