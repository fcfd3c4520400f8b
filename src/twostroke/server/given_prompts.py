"""The prompts of a completion: texts, token ids, and a text with images as clients of llama.cpp send them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twostroke.server.api.schema import MAX_PROMPTS, MediaPrompt
from twostroke.text.templates.pictures import PictureMarks
from twostroke.types.errors import InvalidRequest
from twostroke.types.images import ImageSpan, PlacedPart

if TYPE_CHECKING:
    from twostroke.images.eyes import Looks
    from twostroke.text.templates.chat_template import ChatTemplate

IMAGE_MARK = "<__media__>"
"""The mark that stands in a text where an image goes."""
DATA = "prompt.multimodal_data"
FIRST, LAST = "word before", "word after"
Given = str | MediaPrompt | list[int]
Encode = Callable[[str], Sequence[int]]


def split_prompts(prompt: str | MediaPrompt | Sequence[str | int | list[int]]) -> list[Given]:
    """Returns `prompt`, in any of its forms, as a list of prompts. Raises InvalidRequest."""
    if isinstance(prompt, MediaPrompt):
        if prompt.multimodal_data:
            return [prompt]
        prompt = prompt.prompt_string
    if isinstance(prompt, str):
        prompt = [prompt]
    if not prompt or "" in prompt:
        # Also refused when the tokenizer would put a BOS in front: an empty text is far more often a client's mistake.
        raise InvalidRequest("prompt is empty.", param="prompt", fix="Send some text, or the id of a BOS token.")
    ids = [item for item in prompt if isinstance(item, int)]
    if len(ids) == len(prompt):
        return [ids]
    several = [item for item in prompt if not isinstance(item, int)]
    if len(several) != len(prompt) or len({isinstance(item, str) for item in several}) != 1:
        raise InvalidRequest(
            "prompt mixes texts and token ids.",
            param="prompt",
            fix="Send a text, a list of texts, a list of token ids, or a list of such lists.",
        )
    if len(several) > MAX_PROMPTS:
        raise InvalidRequest(f"prompt has {len(several)} entries; at most {MAX_PROMPTS} are read.", param="prompt")
    return [*several]


def read_prompt(
    given: Given, encode: Encode, looks: Looks | None, template: ChatTemplate | None
) -> tuple[Sequence[int], tuple[ImageSpan, ...]]:
    """Returns the prompt's token ids, and the spans of its images. encode: makes token ids of a text. looks: opens the
    prompt's images; None for a model that reads none. Raises InvalidRequest."""
    if isinstance(given, MediaPrompt):
        return _with_images(given, encode, looks, template)
    return (encode(given) if isinstance(given, str) else given), ()


def shown_text(given: Given, decode: Callable[[list[int]], str]) -> str:
    """Returns a prompt as text, for answers that begin with their prompt. decode: makes a text of token ids."""
    if isinstance(given, MediaPrompt):
        return given.prompt_string
    return given if isinstance(given, str) else decode(given)


def _with_images(
    given: MediaPrompt, encode: Encode, looks: Looks | None, template: ChatTemplate | None
) -> tuple[Sequence[int], tuple[ImageSpan, ...]]:
    texts, files = given.prompt_string.split(IMAGE_MARK), given.multimodal_data
    if looks is None:
        raise InvalidRequest(
            "This model reads no images.",
            param=f"{DATA}[0]",
            why="Its files hold no encoder of images, or the server was started without it.",
            fix="Send text, or ask a model that reads images: `twostroke config MODEL` says why under images.",
        )
    if len(texts) - 1 != len(files):
        raise InvalidRequest(
            f"The prompt has {len(texts) - 1} marks {IMAGE_MARK} for {len(files)} images.",
            param="prompt.prompt_string",
            fix="Write the mark once for each image, in their order.",
        )
    parts = [PlacedPart(_part_of(file), f"{DATA}[{place}]") for place, file in enumerate(files)]
    pictures = looks.look([{"role": "user", "content": parts}])
    if pictures is None:
        raise ValueError("a prompt without images")
    written = pictures.marks.written
    if written in given.prompt_string:
        raise InvalidRequest(
            f"The prompt holds {written}, which stands for an image of this model.",
            param="prompt.prompt_string",
            fix=f"Write {IMAGE_MARK} where an image goes.",
        )
    before, after = ("", "") if template is None else _around(template, written)
    whole = texts[0]
    for place, text in enumerate(texts[1:]):
        whole += f"{before}{pictures.marks.mark(place)}{after}{text}"
    token_ids = encode(pictures.expanded(whole))
    try:
        return token_ids, pictures.spans(token_ids)
    except InvalidRequest as error:
        error.param = "prompt.prompt_string"
        raise


def _around(template: ChatTemplate, written: str) -> tuple[str, str]:
    """Returns the texts that the model's chat template writes before and after an image. A plain prompt gets them
    around its images too, as in llama.cpp. written: the text that stands for an image in this model's prompts."""
    probe = PictureMarks(written)
    content = f"{FIRST}{probe.mark(0)}{LAST}"
    try:
        shown = template.render([{"role": "user", "content": content}], pictures=probe)
    except InvalidRequest:
        return "", ""
    before, found, after = shown.partition(FIRST)[2].partition(LAST)[0].partition(written)
    return (before, after) if found else ("", "")


def _part_of(file: str) -> dict[str, Any]:
    """Returns the part of a message for a file. file: an image in base64, or a data: URL."""
    if file.startswith("data:"):
        return {"type": "image_url", "image_url": {"url": file}}
    return {"type": "image", "source": {"type": "base64", "data": file}}
