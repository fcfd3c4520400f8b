"""Makes the prompt for a text between two others (fill in the middle), with the model's own tokens for this. Several
routes use it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from twostroke.server.api.schema import CompletionRequest, MediaPrompt
from twostroke.server.serving import Serving
from twostroke.text.infill import REPOSITORY, InfillPrompt, InfillTokens, Middle, OtherFile
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes

LEAST_ANSWER = 128
"""The tokens that are kept free for the answer when the request gives no number."""


class OtherText(Struct, frozen=True):
    """A file that may help to fill in, as llama.cpp's clients send it."""

    text: str
    filename: str = ""


class AskedMiddle(Struct, frozen=True):
    """A wanted text and the texts around it. prefix, suffix: the texts before and after the wanted one. prompt: the
    beginning of the wanted text, as far as it is known. extra: other files that may help. max_tokens: the tokens that
    are kept free for the wanted text."""

    prefix: str
    suffix: str
    prompt: str = ""
    extra: Sequence[OtherText] = ()
    max_tokens: int | None = None


def infill_tokens(serving: Serving) -> InfillTokens | None:
    """Returns the model's tokens for filling in; None when it has none."""
    return InfillTokens.find(serving.tokenizer)


def infill_prompt(asked: AskedMiddle, tokens: InfillTokens, serving: Serving) -> InfillPrompt:
    """Returns the prompt. Texts that do not fit are cut, and `left_out` of the prompt records this. Raises
    InvalidRequest."""

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
    """Returns prompts for the text between each of the request's prompts and its suffix. Adds the model's tokens that
    end such a text to the request's stop_token_ids.

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
            raise InvalidRequest("suffix needs a prompt that is a text.", param="prompt", fix="Send the text itself.")
        asked = AskedMiddle(text, request.suffix or "", max_tokens=request.max_tokens)
        found = infill_prompt(asked, tokens, serving)
        notes.add_all(found.left_out)
        made.append(found.token_ids)
    request.stop_token_ids = [*(request.stop_token_ids or ()), *tokens.ends]
    return made


def _begin(serving: Serving) -> list[int]:
    """Returns the token that the tokenizer puts before a text, if there is one."""
    first, plain = serving.tokenizer.encode_prompt("a"), serving.tokenizer.encode_rendered("a")
    return first[:1] if len(first) > len(plain) and first[0] != plain[0] else []
