"""Turns the images in the messages of a prompt into spans of placeholder tokens, one for each image row (an embedding
that the encoder makes).

    pictures = eyes.look(messages)             the files are opened, marks stand in the messages
    text = template.render(pictures.messages, pictures=pictures.marks)
    text = pictures.expanded(text)             each mark becomes placeholders and the tags around them
    spans = pictures.spans(token_ids)

Where opening files would delay other requests, use `eyes.for_request()`: its `look` raises ImagesWanted, and opens
nothing itself.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, structs

from twostroke.images.canvases import with_ends
from twostroke.images.decoding.decoder import ImageDecoder
from twostroke.images.parts import AskedImage, ImageName, image_of
from twostroke.images.processor import Cut, Processor
from twostroke.images.remote.allowed import NOTHING_ELSEWHERE, FetchesImages
from twostroke.text.templates.pictures import PictureMarks
from twostroke.types.errors import InvalidRequest
from twostroke.types.images import Canvas, ImageSpan, ImageTile, Patching, PlacedPart, Sheet, is_image, key_of

VERSION = b"twostroke image 1"
MEMO_BYTES = 64 << 20


class SeenImage(Struct, frozen=True):
    """An image in the form that the model takes. text: the text that stands in the prompt for the image. canvases: the
    position of each tile on the canvas, the plane on which a model places an image; None in models without a canvas."""

    tiles: tuple[ImageTile, ...]
    text: str
    canvases: tuple[Canvas | None, ...] = ()

    @property
    def num_bytes(self) -> int:
        """The number of bytes of its pixels."""
        return sum(len(tile.pixels) for tile in self.tiles)


NOT_SEEN = SeenImage((), "")
"""The placeholder for an image that is not opened yet."""


class SpanShape(Struct, frozen=True):
    """How a model's image spans look. placeholder: the token id that stands for each image row (an embedding from the
    encoder). breaks_lines: whether other tokens stand between lines of image rows. together: whether the rows of a span
    see each other. marks: the ids of tokens with positions on the image's canvas, such as the end of an image."""

    placeholder: int
    breaks_lines: bool
    together: bool
    marks: tuple[int, ...] = ()


class WantedImage(Struct, frozen=True):
    """An image that a request needs opened. where: the part of a message that holds the image, such as
    `messages[0].content[1]`."""

    where: str
    asked: AskedImage


class ImagesWanted(Exception):
    """Raised when a request has images that are not opened yet. images: these images."""

    def __init__(self, images: Sequence[WantedImage]) -> None:
        super().__init__(f"{len(images)} images")
        self.images = images


class Looks(Protocol):
    """Finds and opens the images of a conversation."""

    def look(self, messages: Sequence[Mapping[str, Any]], *, local: bool = False) -> Pictures | None:
        """Returns the images of a conversation; None where it has none. local: whether files, arrays and bytes of the
        caller are accepted.

        Raises InvalidRequest that names the part, such as `messages[0].content[1]`.
        """


class Eyes:
    """Opens the images of prompts and cuts them into tiles. Any thread may call it. patching: how the encoder divides
    tiles. placeholder: the token id that stands for each image row (an embedding). fetcher: fetches files from other
    machines. together, marks: see SpanShape."""

    def __init__(
        self,
        processor: Processor,
        decoder: ImageDecoder,
        patching: Patching,
        placeholder: int,
        together: bool = False,
        fetcher: FetchesImages = NOTHING_ELSEWHERE,
        marks: tuple[int, ...] = (),
    ) -> None:
        self._processor, self._decoder, self.fetcher = processor, decoder, fetcher
        self._patching, self._shape = patching, SpanShape(placeholder, processor.breaks_lines, together, marks)
        self._lock = threading.Lock()
        self._memo: OrderedDict[ImageName, SeenImage] = OrderedDict()
        self._memo_bytes = self.num_opened = 0

    @property
    def fingerprint(self) -> str:
        """A text that identifies all settings of this object. Two objects with the same fingerprint make the same
        tiles, and give them the same positions."""
        rules = (self._processor.settings, self._processor.values, self._patching, self._shape)
        return hashlib.blake2b(repr(rules).encode(), digest_size=16).hexdigest()

    def look(self, messages: Sequence[Mapping[str, Any]], *, local: bool = False) -> Pictures | None:
        """Opens the images of a conversation and returns them; None where it has none. local: whether files, arrays and
        bytes of the caller are accepted.

        Raises InvalidRequest that names the part, such as `messages[0].content[1]`.
        """
        return self.placed(messages, lambda wanted: self.open(wanted.asked), local)

    def for_request(self) -> EyesOfRequest:
        """Returns an object that finds the images of one request. It opens no image itself: its `look` raises
        ImagesWanted for images that are not open yet. The caller opens them and calls `look` again."""
        return EyesOfRequest(self)

    def placed(
        self, messages: Sequence[Mapping[str, Any]], seen: Callable[[WantedImage], SeenImage], local: bool
    ) -> Pictures | None:
        """Returns the images of a conversation; None where it has none. seen: called for each image that the messages
        name; returns the opened image. local: whether files, arrays and bytes of the caller are accepted."""
        marks, found = PictureMarks(self._processor.mark), list[SeenImage]()
        among = self._processor.apart and _images_of(messages) > 1
        made = []
        for place, message in enumerate(messages):
            content = message.get("content") if isinstance(message, Mapping) else None
            if not isinstance(content, Sequence) or isinstance(content, str) or not any(map(is_image, content)):
                made.append(message)
                continue
            parts: list[Any] = []
            for index, part in enumerate(content):
                if is_image(part):
                    where = part.where if isinstance(part, PlacedPart) else f"messages[{place}].content[{index}]"
                    found.append(self._named(part, where, len(found), seen, local, among))
                    part = {"type": "text", "text": marks.mark(len(found) - 1)}
                parts.append(part)
            made.append({**message, "content": parts})
        return Pictures(made, marks, found, self._shape, self._processor.ahead) if found else None

    def _named(
        self,
        part: Mapping[str, Any],
        where: str,
        before: int,
        seen: Callable[[WantedImage], SeenImage],
        local: bool,
        among: bool,
    ) -> SeenImage:
        limits = self._decoder.limits
        if before >= limits.images:
            raise InvalidRequest(
                f"The request has more than {limits.images} images.", param=where, fix="Send fewer images."
            )
        try:
            asked = structs.replace(image_of(part, limits.file_bytes, local=local), among=among)
            if asked.url:
                self.fetcher.host_of(asked.url)
            return seen(WantedImage(where, asked))
        except InvalidRequest as error:
            error.param = where
            raise

    def known(self, name: ImageName) -> SeenImage | None:
        """Returns an image that was opened recently; None for any other image."""
        with self._lock:
            found = self._memo.get(name)
            if found is not None:
                self._memo.move_to_end(name)
            return found

    def fetched(self, asked: AskedImage) -> AskedImage:
        """Returns the image with the bytes of its file. An image that is given by a URL is downloaded; any other is
        returned as it is. Raises InvalidRequest."""
        if not asked.url:
            return asked
        return structs.replace(asked, data=self.fetcher.fetch(asked.url), url="")

    def open(self, asked: AskedImage) -> SeenImage:
        """Opens an image and returns its tiles; an image that was opened recently is taken from memory. Raises
        InvalidRequest."""
        asked = self.fetched(asked)
        name = asked.name
        known = self.known(name)
        if known is not None:
            return known
        made = self._opened(asked)
        with self._lock:
            self.num_opened += 1
            if name not in self._memo:
                self._memo[name] = made
                self._memo_bytes += made.num_bytes
            while self._memo_bytes > MEMO_BYTES and len(self._memo) > 1:
                self._memo_bytes -= self._memo.popitem(last=False)[1].num_bytes
        return made

    def _opened(self, asked: AskedImage) -> SeenImage:
        cuts: list[Cut] = []

        def steps_of(width: int, height: int) -> tuple[Sequence[Any], int]:
            rule = self._processor.cut_among if asked.among else self._processor.cut
            cuts.append(rule(width, height, low=asked.low))
            return cuts[0].steps, cuts[0].num_bytes

        pixels, at, tiles = self._decoder.tiles(asked.data, steps_of), 0, []
        cut = cuts[0]
        lines, sheets = cut.lines(self._patching), cut.sheets or (None,) * len(cut.sizes)
        canvases = tuple(self._processor.canvases(cut, lines))
        for (width, height), shape, sheet, canvas in zip(cut.sizes, lines, sheets, canvases, strict=True):
            own = pixels[at : at + 3 * width * height]
            at += len(own)
            key = self._key(width, height, own, sheet or canvas)
            tiles.append(ImageTile(key, *shape, width, height, own, sheet))
        return SeenImage(tuple(tiles), self._processor.text(cut, lines), canvases)

    def _key(self, width: int, height: int, pixels: bytes, more: Sheet | Canvas | None) -> int:
        """Returns the key of a tile. Two tiles have the same key only where the encoder makes the same rows of both,
        and where rows and end tags get the same positions on the canvas."""
        digest = hashlib.sha256(VERSION)
        size = b"%d x %d" % (width, height) + (b"" if more is None else repr(more).encode())
        for part in (self._processor.settings.encode(), size, pixels):
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return key_of(digest.digest())

    def close(self) -> None:
        """Ends the process that opens files."""
        self._decoder.close()


def _images_of(messages: Sequence[Mapping[str, Any]]) -> int:
    contents = (message.get("content") for message in messages if isinstance(message, Mapping))
    return sum(is_image(part) for each in contents if isinstance(each, list) for part in each)


class EyesOfRequest:
    """Finds the images of one request without opening files. `look` raises ImagesWanted with the images that are not
    opened yet. The caller opens them in another thread, gives them to `take`, and calls `look` again. Images that were
    found stay known."""

    def __init__(self, eyes: Eyes) -> None:
        self._eyes = eyes
        self._found: dict[ImageName, SeenImage] = {}

    def look(self, messages: Sequence[Mapping[str, Any]], *, local: bool = False) -> Pictures | None:
        """Returns the images of the request; None where it has none. Raises ImagesWanted with all images that the
        caller must open first. local: whether files, arrays and bytes of the caller are accepted."""
        wanted: list[WantedImage] = []

        def seen(image: WantedImage) -> SeenImage:
            name = image.asked.name
            found = self._found.get(name) or self._eyes.known(name)
            if found is None:
                wanted.append(image)
                return NOT_SEEN
            self._found[name] = found
            return found

        made = self._eyes.placed(messages, seen, local)
        if wanted:
            raise ImagesWanted(wanted)
        return made

    def take(self, asked: AskedImage, seen: SeenImage) -> None:
        """Remembers an image that the caller has opened, for the next `look`."""
        self._found[asked.name] = seen


class Pictures:
    """The opened images of one prompt. messages: the messages with marks in place of the images. Satisfies
    `text.templates.pictures.PlacedImages`."""

    def __init__(
        self,
        messages: list[Any],
        marks: PictureMarks,
        images: Sequence[SeenImage],
        shape: SpanShape,
        ahead: Callable[[int], str],
    ) -> None:
        """ahead: called with the number of images before this one in the prompt; returns the text that stands before
        the image, such as `<image_id>0</image_id>`."""
        self.messages, self.marks = messages, marks
        self._images, self._shape, self._ahead = images, shape, ahead
        self._tiles: list[tuple[ImageTile, Canvas | None]] = []

    def expanded(self, text: str) -> str:
        """Returns the rendered text, with the mark of each image replaced by the text that the model reads for it.
        Raises InvalidRequest."""
        made, order = self.marks.replaced(text, [image.text for image in self._images], self._ahead)
        found = [self._images[number] for number in order]
        self._tiles = [pair for image in found for pair in zip(image.tiles, image.canvases, strict=True)]
        return made

    def spans(self, token_ids: Sequence[int]) -> tuple[ImageSpan, ...]:
        places = [place for place, token_id in enumerate(token_ids) if token_id == self._shape.placeholder]
        spans, at = [], 0
        for tile, canvas in self._tiles:
            length = tile.columns if self._shape.breaks_lines else tile.rows
            for skipped in range(0, tile.rows, length):
                own = places[at : at + length]
                if len(own) == length and own[-1] - own[0] == length - 1:
                    spans.append(ImageSpan(own[0], tile, skipped, length, self._shape.together, canvas))
                at += length
        if at != len(places) or sum(span.count for span in spans) != at:
            wanted = sum(tile.rows for tile, _ in self._tiles)
            raise InvalidRequest(
                f"The prompt has {len(places)} places for {wanted} image rows.",
                param="messages",
                why="The tokenizer has made other tokens of the images' marks than the model expects.",
                fix="Send no control tokens in texts.",
            )
        return with_ends(spans, token_ids, self._shape.marks) if self._shape.marks else tuple(spans)
