"""A text between two others, asked for on any route: the prompt of the model's own tokens for it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from twostroke.server.api.schema import CompletionRequest, MediaPrompt
from twostroke.server.serving import Serving
from twostroke.text.infill import REPOSITORY, InfillPrompt, InfillTokens, Middle, OtherFile
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes

LEAST_ANSWER = 128
"""Tokens that are kept for the answer where the request does not say how many it wants."""


class OtherText(Struct, frozen=True):
    """A file that may help, as llama.cpp's clients send it."""

    text: str
    filename: str = ""


class AskedMiddle(Struct, frozen=True):
    """The texts around the wanted one. prompt: how that one begins. max_tokens: what is kept free for it."""

    prefix: str
    suffix: str
    prompt: str = ""
    extra: Sequence[OtherText] = ()
    max_tokens: int | None = None


def infill_tokens(serving: Serving) -> InfillTokens | None:
    """The model's tokens for filling in; None where it has none."""
    return InfillTokens.find(serving.tokenizer)


def infill_prompt(asked: AskedMiddle, tokens: InfillTokens, serving: Serving) -> InfillPrompt:
    """The prompt; texts that do not fit are cut, and it says so. Raises InvalidRequest."""

    def ids(text: str) -> list[int]:
        return serving.tokenizer.encode_rendered(text, quoted=((0, len(text)),)) if text else []

    begin = _begin(serving)
    answer = LEAST_ANSWER if asked.max_tokens is None else max(1, asked.max_tokens)
    room = serving.context_tokens - len(begin) - min(answer, serving.context_tokens // 2)
    others = [OtherFile(ids(f"{each.filename}\n"), ids(each.text)) for each in asked.extra]
    middle = Middle(ids(asked.prefix), ids(asked.suffix), ids(asked.prompt), others, ids(f"{REPOSITORY}\n"))
    if len(middle.begun) + 3 > room:
        raise InvalidRequest("The text that the answer begins with is longer than the context.", param="prompt")
    made = tokens.prompt(middle, room)
    return InfillPrompt([*begin, *made.token_ids], made.left_out)


def infilled(request: CompletionRequest, serving: Serving, notes: Notes) -> list[str | list[int]]:
    """The prompts of a completion between each prompt and the suffix; it ends at the model's tokens for that, too.

    Raises InvalidRequest.
    """
    tokens = infill_tokens(serving)
    if tokens is None:
        raise InvalidRequest(
            "suffix is not supported.",
            param="suffix",
            why=f"The model {serving.served_name} has no tokens for filling in the middle.",
            fix="Leave it out.",
        )
    texts = [request.prompt] if isinstance(request.prompt, str | MediaPrompt) else request.prompt
    made: list[str | list[int]] = []
    for text in texts:
        if not isinstance(text, str):
            raise InvalidRequest("suffix goes with a prompt of text.", param="prompt", fix="Send the text itself.")
        asked = AskedMiddle(text, request.suffix or "", max_tokens=request.max_tokens)
        found = infill_prompt(asked, tokens, serving)
        notes.add_all(found.left_out)
        made.append(found.token_ids)
    request.stop_token_ids = [*(request.stop_token_ids or ()), *tokens.ends]
    return made


def _begin(serving: Serving) -> list[int]:
    """The token that the tokenizer puts in front of a text, where there is one."""
    first, plain = serving.tokenizer.encode_prompt("a"), serving.tokenizer.encode_rendered("a")
    return first[:1] if len(first) > len(plain) and first[0] != plain[0] else []
