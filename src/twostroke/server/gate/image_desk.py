"""Images of requests are fetched and opened in threads of their own, so that short texts never wait for an image.

    call = await read_with_images(parts.lanes, parts.desk, parts.eyes, len(body), read)

The function `read` runs again after the images that it asked for were opened.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from twostroke.server.gate.lanes import Lanes
from twostroke.types.errors import InvalidRequest
from twostroke.types.first_use.lazy_module import LazyModule

if TYPE_CHECKING:
    from twostroke.images import eyes as image_eyes
    from twostroke.images.eyes import Eyes, EyesOfRequest, Looks, SeenImage, WantedImage
    from twostroke.images.parts import AskedImage
else:
    image_eyes = LazyModule("twostroke.images.eyes")

T = TypeVar("T")
MOST_AT_ONCE, OF_ONE_HOST, OPENERS = 8, 2, 2
"""The most files that are fetched at a time for all requests together, the most of them from one host, and the number
of threads that open files."""


class ImageDesk:
    """Fetches and opens the images of requests in threads, for one event loop. A fetched file is opened at once, so
    that at most MOST_AT_ONCE files are in memory."""

    def __init__(self) -> None:
        self._fetching = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="fetch-image")
        self._opening = ThreadPoolExecutor(OPENERS, thread_name_prefix="open-image")
        self._free = asyncio.Condition()
        self._hosts = Counter[str]()

    async def open(self, eyes: Eyes, own: EyesOfRequest, wanted: Sequence[WantedImage]) -> None:
        """Opens the wanted images and gives them to `own`, which holds the images of the request. Raises InvalidRequest
        that names the part of the first image that cannot be opened."""
        made = await asyncio.gather(*(self._opened(eyes, each.asked) for each in wanted), return_exceptions=True)
        for image, found in zip(wanted, made, strict=True):
            if isinstance(found, InvalidRequest):
                found.param = image.where
            if isinstance(found, BaseException):
                raise found
            own.take(image.asked, found)

    async def _opened(self, eyes: Eyes, asked: AskedImage) -> SeenImage:
        loop = asyncio.get_running_loop()
        if not asked.url:
            return await loop.run_in_executor(self._opening, eyes.open, asked)
        async with self._turn(eyes.fetcher.host_of(asked.url)):
            fetched = await loop.run_in_executor(self._fetching, eyes.fetched, asked)
            return await loop.run_in_executor(self._opening, eyes.open, fetched)

    @asynccontextmanager
    async def _turn(self, host: str) -> AsyncIterator[None]:
        """Waits until another file of this host may be fetched; the number of fetches is bounded for each host and for
        all hosts together."""
        async with self._free:
            await self._free.wait_for(lambda: self._hosts[host] < OF_ONE_HOST and self._hosts.total() < MOST_AT_ONCE)
            self._hosts[host] += 1
        try:
            yield
        finally:
            async with self._free:
                self._hosts[host] -= 1
                self._hosts += Counter()  # hosts with a count of zero are forgotten
                self._free.notify_all()


async def read_with_images(
    lanes: Lanes, desk: ImageDesk, eyes: Eyes | None, body: bytes, read: Callable[[Looks | None], T]
) -> T:
    """Returns the result of `read`, which runs in a thread for bodies of this length. If `read` raises ImagesWanted,
    the wanted images are opened, and `read` runs again from the start.

    Raises what `read` raises, and InvalidRequest for an image that cannot be opened.
    """
    if eyes is None:
        return await lanes.read(body, read, None)
    own = eyes.for_request()
    while True:  # each round opens all images that `read` asks for
        try:
            return await lanes.read(body, read, own)
        except image_eyes.ImagesWanted as wanted:
            images = wanted.images
        await desk.open(eyes, own, images)
