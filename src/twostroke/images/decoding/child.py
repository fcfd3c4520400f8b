"""The program of the process that opens image files, one after the other. The parent may kill it during any of them.

In: a line of JSON {"bytes": n, "formats": [...], "pixels": n} and n bytes. Out: {"width": w, "height": h}, the size of
the image after the rotation that EXIF asks for, or {"fault": text}. An image with more pixels than the input allows
gets the size in the file's header, without rotation. In: {"steps": [...], "wall_s": s}. Out: {"bytes": n} and n bytes:
the tiles one after the other, three bytes a pixel; or {"fault": text}. Empty steps end the job without an answer.

Steps: ["resize", w, h, filter] changes the image. ["tile", x, y, w, h] gives a part of it, black where that part is
larger than the image. ["whole", w, h, filter] gives the whole image in that size. ["again"] undoes all resizing before
it. ["square", r, g, b] puts the image into the middle of a square of this colour.

The program ends when its input ends. It imports nothing of Twostroke but twostroke.system.
"""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

from twostroke.system import here

if TYPE_CHECKING:
    from PIL import Image

NICENESS = 5
"""The niceness of this process. An engine's threads compute meanwhile and wait for each other, so none of them should
lose its core to this process."""
WIDE = ("I;16", "I;16L", "I;16B", "I")
"""Pillow's modes for grey images with 16 bits a pixel; only the upper 8 bits are used."""


def opened(data: bytes, formats: list[str]) -> Image.Image:
    """Returns the first frame of a file; its pixels are not decoded yet."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the parent decides by the size that the header states
    return Image.open(io.BytesIO(data), formats=formats)


def shown_size(image: Image.Image) -> tuple[int, int]:
    """Returns width and height after the rotation that EXIF asks for."""
    width, height = image.size
    return (height, width) if image.getexif().get(0x0112) in (5, 6, 7, 8) else (width, height)


def in_color(image: Image.Image) -> Image.Image:
    """Returns the image with three bytes a pixel, rotated as EXIF asks. Transparent pixels become white."""
    from PIL import Image, ImageOps

    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode in WIDE:
        return image.convert("I").point(lambda value: value * (1 / 256)).convert("L").convert("RGB")
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def tiles_of(image: Image.Image, steps: list[list[Any]]) -> bytes:
    """Runs the steps (see the module) on an image and returns the resulting tiles as bytes, three a pixel."""
    from PIL import Image

    made, whole = [], image
    for kind, *numbers in steps:
        if kind == "again":
            image = whole
            continue
        if kind == "tile":
            x, y, width, height = numbers
            made.append(image.crop((x, y, x + width, y + height)).tobytes())
            continue
        if kind == "square":
            image = squared(image, tuple(numbers))
            continue
        width, height, word = numbers
        changed = image.resize((width, height), Image.Resampling(word))
        if kind == "resize":
            image = changed
        else:
            made.append(changed.tobytes())
    return b"".join(made)


def squared(image: Image.Image, color: tuple[int, ...]) -> Image.Image:
    """Returns the image in the middle of a square of this colour."""
    from PIL import Image

    side = max(image.size)
    made = Image.new("RGB", (side, side), color)
    made.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return made


def limit(memory_bytes: int) -> None:
    """Limits this process to `memory_bytes` of memory, and forbids it to write files."""
    here.limit_memory(memory_bytes)
    here.write_no_files()


def answer(values: dict[str, Any], data: bytes = b"") -> None:
    """Writes one line of JSON, and `data` after it."""
    sys.stdout.buffer.write(json.dumps(values).encode() + b"\n" + data)
    sys.stdout.buffer.flush()


def fault_of(error: BaseException) -> dict[str, str]:
    """Returns {"fault": text} for an exception. The text is Pillow's message without names of files and objects in
    memory."""
    if isinstance(error, MemoryError):
        return {"fault": "it takes too much memory"}
    return {"fault": str(error).split(" <", 1)[0].split(" file ", 1)[0][:200] or type(error).__name__}


def job(ask: dict[str, Any]) -> None:
    """Handles one image: reads the bytes of its file and writes its size. Then it reads the steps that cut the image
    ("resize", "tile" and others, see the module) and writes the tiles. An error is written in place of the size or of
    the tiles."""
    data = sys.stdin.buffer.read(ask["bytes"])
    try:
        image = opened(data, ask["formats"])
        # In some files EXIF data comes after all pixels, so EXIF is not read for an image that is too large.
        large = image.width * image.height > ask["pixels"]
        width, height = image.size if large else shown_size(image)
    except Exception as error:  # Pillow raises any exception for broken files
        return answer(fault_of(error))
    answer({"width": width, "height": height})
    wanted = json.loads(sys.stdin.buffer.readline())
    if not wanted["steps"]:
        return None
    # The system ends this process if the parent is gone, because no other process would end it.
    here.end_after(wall_s=2 * wanted["wall_s"])
    try:
        made = tiles_of(in_color(image), wanted["steps"])
    except Exception as error:
        here.end_after(wall_s=0)
        return answer(fault_of(error))
    here.end_after(wall_s=0)
    return answer({"bytes": len(made)}, made)


def main() -> None:
    """Limits the memory of this process, writes that it is ready, and handles one image for each line of standard input
    until the input ends."""
    from PIL import Image

    here.stand_back(NICENESS)
    Image.init()  # all needed parts of Pillow are loaded before memory is limited
    try:
        limit(int(sys.argv[1]))
    except OSError as error:
        return answer({"refused": f"setrlimit: {error.strerror}"})
    answer({"ready": True})
    for line in sys.stdin.buffer:
        job(json.loads(line))
    return None


if __name__ == "__main__":
    main()
