"""Images in a plan: the tokens of an image of a given size, the time of its encode, the memory of the encoder.

Only config.json is read, and files of the image processor and the tokenizer where they are next to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from twostroke.assembly.cost_here import encoder_cost
from twostroke.assembly.folders import texts_of
from twostroke.assembly.images.encoder_format import EncoderFormat
from twostroke.assembly.images.sight import encoder_bytes, processor_of
from twostroke.assembly.images.sight_files import sight_files
from twostroke.assembly.settings.config import IMAGE_CACHE, IMAGE_TOKENS
from twostroke.assembly.settings.engine_settings import ModelSettings
from twostroke.assembly.settings.resolver import Resolver
from twostroke.cost.calibration import Calibration
from twostroke.cost.encode_cost import EncodeCost
from twostroke.images.processor import Processor
from twostroke.lab.planner.ask import Ask
from twostroke.models.common.encoders import SightEncoder, read_encoder
from twostroke.ops.program.model import Model
from twostroke.types.errors import ConfigError, ModelError
from twostroke.types.images import ImageTile
from twostroke.types.spec.hardware import HardwareSpec
from twostroke.weights.json_file import read_object

_TOKEN = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]|\s+|[^\s<>\[\]]{1,4}")
"""Finds the tokens of a text where there is no tokenizer. A tag such as <image> is one token, and so is a run of white
space; words count as one token for each four characters."""


class ImageSize(Struct, frozen=True):
    """The size of an image in pixels."""

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width} x {self.height}"


class PlannedImage(Struct, frozen=True):
    """An image in a plan. rows: for each tile, the number of tokens that show it. tokens: the number of all these
    tokens and of the tags around them. encode_s: the seconds of its encode. sent_bytes: the bytes of its rows when a
    replica that encodes for others sends them."""

    width: int
    height: int
    rows: tuple[int, ...]
    tokens: int
    encode_s: float
    sent_bytes: int = 0

    def as_json(self) -> dict[str, float]:
        """Returns the image as plain values."""
        counts = {"parts": len(self.rows), "rows": sum(self.rows), "tokens": self.tokens}
        size = {"width": self.width, "height": self.height}
        return {**size, **counts, "encode_s": self.encode_s, "sent_bytes": self.sent_bytes}


class PlannedSight(Struct, frozen=True):
    """The part of a model that reads images. most_rows: the most embeddings that the encoder makes of one tile. count:
    returns the number of tokens of a text. form: the formats in which the encoder computes."""

    encoder: SightEncoder
    processor: Processor
    most_rows: int
    count: Callable[[str], int]
    form: EncoderFormat

    @property
    def row_bytes(self) -> int:
        """The bytes of one image row (an embedding) when it is sent to another replica."""
        program = self.encoder.model.program
        return 4 * sum(value.width for value in (program.logits, *program.kept))

    @property
    def num_bytes(self) -> int:
        """The memory of the encoder and of the cache of image rows (embeddings), in bytes."""
        found = encoder_bytes(self.encoder, self.most_rows, self.form)
        return found.weights + found.buffers + IMAGE_CACHE

    def cost(self, machine: HardwareSpec | Calibration) -> EncodeCost:
        """Returns the cost of encodes. Raises ConfigError where the machine was not measured with these weights."""
        return encoder_cost(self.encoder, self.form, machine)

    def asked(self, ask: Ask) -> Ask:
        """Returns a copy of `ask` (what the user wants planned) with the memory of the image encoder and the name of
        the encoder's weight format."""
        return replace(ask, encoder_bytes=self.num_bytes, encoder_weights=self.form.name)

    def image(self, size: ImageSize, machine: HardwareSpec | Calibration) -> PlannedImage:
        """Returns the plan of an image of this size. Raises ConfigError as `cost` does."""
        cut = self.processor.cut(size.width, size.height)
        lines = cut.lines(self.encoder.sight.patching)
        rows = [each * columns for each, columns in lines]
        tokens, cost = self.count(self.processor.ahead(0) + self.processor.text(cut, lines)), self.cost(machine)
        sheets = cut.sheets or (None,) * len(lines)
        tiles = [ImageTile(-1, *shape, 0, 0, b"", sheet) for shape, sheet in zip(lines, sheets, strict=True)]
        encode_s = sum(map(cost.tile_s, tiles))
        return PlannedImage(size.width, size.height, tuple(rows), tokens, encode_s, sum(rows) * self.row_bytes)


def parse_size(text: str) -> ImageSize:
    """Parses a size such as "1024x768". Raises ValueError."""
    found = re.fullmatch(r"\s*([1-9]\d{0,4})\s*[xX*]\s*([1-9]\d{0,4})\s*", text)
    if found is None:
        raise ValueError("write WIDTHxHEIGHT in pixels, such as 1024x768")
    return ImageSize(int(found[1]), int(found[2]))


def find_sight(
    source: str, spec: Model, folder: Path, form: EncoderFormat, wanted: str = ""
) -> PlannedSight | None:
    """Returns the part of a model that reads images; None where there is none. folder: the folder of its config.json.

    wanted: the command's flag that needs this part; empty for none. With a flag, raises ConfigError where the model has
    no such part.
    """
    resolver = Resolver({})
    resolver.put(ModelSettings.model, source, "asked for")
    why = "Its files describe no encoder of images that is implemented."
    try:
        files = sight_files(resolver, spec, folder, read_object(folder / "config.json"))
        encoder = None if files is None else read_encoder(files.config, spec)
        if files is not None and encoder is not None:
            processor, rows = processor_of(encoder.sight, files.settings, IMAGE_TOKENS)
            return PlannedSight(encoder, processor, rows, counter(folder), form)
    except (ConfigError, ModelError) as error:
        why = str(error)
    if wanted:
        raise ConfigError(f"{wanted}: {source} reads no images.", why=why, fix="Leave it out.")
    return None


def counter(folder: Path) -> Callable[[str], int]:
    """Returns a function that counts the tokens of a text, by the model's tokenizer where `folder` has one."""
    if not (folder / "tokenizer.json").is_file():
        return lambda text: len(_TOKEN.findall(text))
    tokenizer, _ = texts_of(Resolver({}), folder)
    return lambda text: len(tokenizer.encode_rendered(text))


def with_images(
    sight: PlannedSight | None,
    texts: Sequence[str],
    ask: Ask,
    machine: HardwareSpec | Calibration,
    most_tokens: int | None = None,
) -> tuple[PlannedImage, ...]:
    """Returns the images of each prompt. texts: their sizes. most_tokens: the most tokens of a prompt; None for the
    number in `ask`. Raises ConfigError for a wrong size, and where the prompt is shorter than its images."""
    if sight is None:
        return ()
    try:
        made = tuple(sight.image(parse_size(text), machine) for text in texts)
    except ValueError as error:
        raise ConfigError(f"--image has a wrong size: {error}.") from None
    tokens = sum(image.tokens for image in made)
    if tokens > (room := ask.prompt_tokens if most_tokens is None else most_tokens):
        raise ConfigError(
            f"The images alone are {tokens:,} tokens, and the prompt has {room:,}.",
            why="--context is prompt and answer together, and --output is the answer.",
            fix=f"Ask for at least --context {tokens + ask.output_tokens + 1:,}.",
        )
    return made


def image_lines(images: tuple[PlannedImage, ...], encoder_bytes: str, weights: str, ttft: str) -> list[str]:
    """Returns the section of a plan about images. encoder_bytes, ttft: figures as text. weights: the name of the
    format of the encoder's weights."""
    lines = encoder_lines(images, encoder_bytes, weights)
    said = f"one request alone, with {'these images' if len(images) > 1 else 'this image'}: TTFT {ttft}"
    sent = f"{sum(image.sent_bytes for image in images) / 1e6:,.1f} MB of rows"
    return [
        *lines,
        f"{said}; of images that were shown lately nothing is encoded",
        f"encoded by another replica (--role encode): no encode here, and {sent} travel",
    ] if images else lines


def encoder_lines(images: tuple[PlannedImage, ...], encoder_bytes: str, weights: str) -> list[str]:
    """Returns the lines of a plan about the encoder and each image. See `image_lines`."""
    said = f"weights in {weights}, buffers and the rows of images that are kept"
    lines = [f"encoder of images   {encoder_bytes:>12}   {said}"]
    for each in images:
        parts = f" in {len(each.rows)} parts" if len(each.rows) > 1 else ""
        size = f"{each.width} x {each.height}"
        rows = f"{sum(each.rows):,} of them image rows"
        lines.append(f"image {size:<13} {each.tokens:>11,} tokens{parts}, {rows}; encode {_words(each)}")
    return lines


def _words(image: PlannedImage) -> str:
    return f"{image.encode_s:.2f} s" if image.encode_s >= 1 else f"{1e3 * image.encode_s:.0f} ms"
