"""The images of a prompt: from the parts of its messages to spans of placeholders.

    pictures = eyes.look(messages)             the files are opened, marks stand in the messages
    text = template.render(pictures.messages, pictures=pictures.marks)
    text = pictures.expanded(text)             a placeholder for each image row, and what stands around
    spans = pictures.spans(token_ids)
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from twostroke.images.decoder import ImageDecoder
from twostroke.images.parts import AskedImage, image_of, is_image
from twostroke.images.processor import Cut, Processor
from twostroke.text.pictures import PictureMarks
from twostroke.types.errors import InvalidRequest
from twostroke.types.images import ImageSpan, ImageTile, Patching, key_of

VERSION = b"twostroke image 1"
MEMO_BYTES = 64 << 20


class SeenImage(Struct, frozen=True):
    """An image as the model takes it. text: what stands in the prompt for it."""

    tiles: tuple[ImageTile, ...]
    text: str

    @property
    def num_bytes(self) -> int:
        """Bytes of its pixels."""
        return sum(len(tile.pixels) for tile in self.tiles)


class SpanShape(Struct, frozen=True):
    """placeholder: the token id of each image row. breaks_lines: see Processor. together: see ImageSpan."""

    placeholder: int
    breaks_lines: bool
    together: bool


class Eyes:
    """Opens images for prompts; any thread may ask. patching: how the encoder divides tiles. placeholder: the token id
    of each image row. together: see ImageSpan."""

    def __init__(
        self,
        processor: Processor,
        decoder: ImageDecoder,
        patching: Patching,
        placeholder: int,
        together: bool = False,
    ) -> None:
        self._processor, self._decoder = processor, decoder
        self._patching, self._shape = patching, SpanShape(placeholder, processor.breaks_lines, together)
        self._lock = threading.Lock()
        self._memo: OrderedDict[tuple[bytes, bool], SeenImage] = OrderedDict()
        self._memo_bytes = self.num_opened = 0

    def look(self, messages: Sequence[Mapping[str, Any]], *, local: bool = False) -> Pictures | None:
        """The images of a conversation; None where it has none. local: see `image_of`.

        Raises InvalidRequest that names the part, as `messages[0].content[1]`.
        """
        marks, found = PictureMarks(self._processor.mark), list[SeenImage]()
        made = []
        for place, message in enumerate(messages):
            content = message.get("content") if isinstance(message, Mapping) else None
            if not isinstance(content, Sequence) or isinstance(content, str) or not any(map(is_image, content)):
                made.append(message)
                continue
            parts: list[Any] = []
            for index, part in enumerate(content):
                if is_image(part):
                    where = f"messages[{place}].content[{index}]"
                    found.append(self._seen(part, where, len(found), local))
                    part = {"type": "text", "text": marks.mark(len(found) - 1)}
                parts.append(part)
            made.append({**message, "content": parts})
        return Pictures(made, marks, found, self._shape) if found else None

    def _seen(self, part: Mapping[str, Any], where: str, before: int, local: bool) -> SeenImage:
        limits = self._decoder.limits
        if before >= limits.images:
            raise InvalidRequest(
                f"The request has more than {limits.images} images.", param=where, fix="Send fewer images."
            )
        try:
            return self.open(image_of(part, limits.file_bytes, local=local))
        except InvalidRequest as error:
            error.param = where
            raise

    def open(self, asked: AskedImage) -> SeenImage:
        """The tiles of a file, which is opened where it is not known. Raises InvalidRequest."""
        name = (hashlib.sha256(asked.data).digest(), asked.low)
        with self._lock:
            known = self._memo.get(name)
            if known is not None:
                self._memo.move_to_end(name)
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

        def rule(width: int, height: int) -> tuple[Sequence[Any], int]:
            cuts.append(self._processor.cut(width, height, low=asked.low))
            return cuts[0].steps, cuts[0].num_bytes

        pixels, at, tiles = self._decoder.tiles(asked.data, rule), 0, []
        for width, height in cuts[0].sizes:
            own = pixels[at : at + 3 * width * height]
            at += len(own)
            lines, columns = self._patching.lines(width, height)
            tiles.append(ImageTile(self._key(width, height, own), lines, columns, width, height, own))
        return SeenImage(tuple(tiles), self._processor.text(cuts[0], [(tile.lines, tile.columns) for tile in tiles]))

    def _key(self, width: int, height: int, pixels: bytes) -> int:
        """Two tiles have one key only where the encoder makes the same rows of them."""
        digest = hashlib.sha256(VERSION)
        for part in (self._processor.settings.encode(), b"%d x %d" % (width, height), pixels):
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return key_of(digest.digest())

    def close(self) -> None:
        """End the process that opens files."""
        self._decoder.close()


class Pictures:
    """The images of one prompt. messages: with marks in their places. Satisfies `text.pictures.PlacedImages`."""

    def __init__(
        self, messages: list[Any], marks: PictureMarks, images: Sequence[SeenImage], shape: SpanShape
    ) -> None:
        self.messages, self.marks = messages, marks
        self._images, self._shape = images, shape
        self._tiles: list[ImageTile] = []

    def expanded(self, text: str) -> str:
        """The rendered text with what the model reads for each image. Raises InvalidRequest."""
        made, order = self.marks.replaced(text, [image.text for image in self._images])
        self._tiles = [tile for number in order for tile in self._images[number].tiles]
        return made

    def spans(self, token_ids: Sequence[int]) -> tuple[ImageSpan, ...]:
        """See PlacedImages."""
        places = [place for place, token_id in enumerate(token_ids) if token_id == self._shape.placeholder]
        spans, at = [], 0
        for tile in self._tiles:
            length = tile.columns if self._shape.breaks_lines else tile.rows
            for skipped in range(0, tile.rows, length):
                own = places[at : at + length]
                if len(own) == length and own[-1] - own[0] == length - 1:
                    spans.append(ImageSpan(own[0], tile, skipped, length, self._shape.together))
                at += length
        if at != len(places) or sum(span.count for span in spans) != at:
            wanted = sum(tile.rows for tile in self._tiles)
            raise InvalidRequest(
                f"The prompt has {len(places)} places for {wanted} image rows.",
                param="messages",
                why="The tokenizer has made other tokens of the images' marks than the model expects.",
                fix="Send no control tokens in texts.",
            )
        return tuple(spans)
