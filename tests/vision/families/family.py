"""A family of models that see images, as a tiny folder: random weights, a tokenizer of bytes, a template, a processor
file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:
    import torch

Given = dict[str, Any]
"""What the judge's processor makes of images: the inputs of its model."""


def wide(parameter: torch.Tensor) -> tuple[float, float]:
    """A deviation so large that each part of a tiny model matters."""
    return (0.0, 0.15) if parameter.ndim > 1 else (0.5, 0.2)


class Family(Struct, frozen=True):
    """One family. config: the judge's configuration and class. marks: special tokens, the placeholder first. written:
    what the template writes for an image. settings: the processor's file. processor: the judge's processor. text(given,
    place): the text of the prompt for one image of it. types: the judge's input that tells which tokens are image rows.
    pixels(given): the judge's pixels for each tile of one image. doubled: whether the tower reads twice its pixels
    minus one. unread: inputs from which texts are made and which the judge's model does not take. masks: what each row
    of the judge sees, given the judge and the tokens that are image rows; None where its model makes that itself. pool:
    so little memory for pages that requests of the tests preempt each other; empty where windows admit too few.
    features(judge, given): the judge's image rows. rounded: whether values are rounded so far that bytes do not follow
    from them."""

    name: str
    judge: Callable[[], torch.nn.Module]
    marks: tuple[str, ...]
    written: str
    settings: Given
    process: Callable[[Sequence[Image.Image], Given], Given]
    texts: Callable[[Given], list[str]]
    types: str = ""
    pool: str = "280KB"
    pixels: Callable[[Given], Sequence[torch.Tensor]] = lambda given: [given["pixel_values"]]
    doubled: bool = False
    unread: tuple[str, ...] = ()
    masks: Callable[[torch.nn.Module, torch.Tensor], Given] | None = None
    features: Callable[[Any, Given], Any] = lambda judge, given: judge.model.get_image_features(**given)
    rounded: bool = False

    @property
    def placeholder(self) -> int:
        """The placeholder's token id."""
        return library(self.marks).token_to_id(self.marks[0])  # type: ignore[return-value]

    def token_ids(self, text: str) -> list[int]:
        """The token ids of a rendered prompt."""
        return library(self.marks).encode(text, add_special_tokens=False).ids

    def processed(self, images: Sequence[Image.Image], **settings: Any) -> Given:
        """The judge's inputs; none without images."""
        return self.process(images, {**self.settings, **settings}) if images else {}

    def inputs(self, images: Sequence[Image.Image]) -> Given:
        """The results of the judge's processor that its model takes."""
        return {name: value for name, value in self.processed(images).items() if name not in self.unread}

    def write(self, folder: Path, spread: Callable[[torch.Tensor], tuple[float, float]] = wide) -> torch.nn.Module:
        """Writes the folder and returns the judge. spread: mean and standard deviation of a tensor's random numbers."""
        import torch

        torch.manual_seed(7)
        judge = self.judge().eval().float()
        for parameter in judge.parameters():
            torch.nn.init.normal_(parameter, *spread(parameter))
        judge.save_pretrained(folder)
        library(self.marks).save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": self.marks[1]}))
        (folder / "chat_template.jinja").write_text(TEMPLATE.replace("WRITTEN", self.written))
        (folder / "preprocessor_config.json").write_text(json.dumps(self.settings))
        return judge


TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}WRITTEN{% endif %}{% endfor %}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
"""Contents are lists of parts, as in the templates of all families here."""


@cache
def library(marks: tuple[str, ...]) -> Tokenizer:
    """A tokenizer of bytes and the marks."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: place for place, letter in enumerate([*letters, "qz"])}
    made = Tokenizer(models.BPE(words, [("q", "z")]))  # one merge, because files of GGUF must have some
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in marks])
    return made


def template_text(parts: Sequence[str]) -> str:
    """The prompt of one message of a user, with texts in place of images."""
    return f"<|start|>user\n{''.join(parts)}<|end|>\n<|start|>assistant\n"


TEXT: Given = {
    **{"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024, "pad_token_id": 0},
}
