"""Wrong images in every API give one clear error with the field, and the server goes on. Of damaged files, at most one
image is lost."""

from __future__ import annotations

import base64
import io
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.serve.harness import Live, serving
from tests.vision.folders import picture, png, smolvlm
from tests.vision.served.test_input import OPTIONS, url_of
from twostroke.images.decoding.decoder import ImageDecoder, ImageLimits
from twostroke.server.build import build_server
from twostroke.types.errors import InvalidRequest

FILE = png(picture(30, 30))
SEED, DAMAGED = 20261128, 40


def chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def header(width: int, height: int) -> bytes:
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size + b"\x08\x02\0\0\0")


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few kilobytes that unpacks to rows of zeros."""
    packed = zlib.compress(bytes(min((3 * width + 1) * height, 1 << 24)), 9)
    return header(width, height) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def saved(image: Image.Image, kind: str, **more: Any) -> bytes:
    made = io.BytesIO()
    image.save(made, kind, **more)
    return made.getvalue()


BAD: dict[str, tuple[bytes, str]] = {
    "no image": (b"hello world, hello world", "no format"),
    "another format": (b"%PDF-1.7 none", "PDF"),
    "HEIC": (b"\0\0\0\x18ftypheic" + bytes(40), "HEIC"),
    "SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
    "nothing": (b"", ""),
    "a header alone": (FILE[:20], "PNG"),
    "a cut file": (FILE[: len(FILE) // 2], "PNG"),
    "wrong sums": (FILE[:40] + b"\xff" * 40 + FILE[80:], "PNG"),
    "no pixels": (header(0, 0) + chunk(b"IEND", b""), "PNG"),
    "no rows": (header(5, 0) + chunk(b"IEND", b""), "PNG"),
    "many pixels": (bomb(60_000, 60_000), "pixels"),
    "a long side": (header(2_000_000_000, 1) + chunk(b"IEND", b""), "pixels"),
    "a frame outside": (b"GIF89a\x05\0\x05\0\0\0\0,\xff\xff\xff\xff\x09\0\x09\0\0\x02\x02\x44\x01\0;", ""),
    "text that unpacks to much": (
        header(2, 2) + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 26), 9)) + chunk(b"IEND", b""),
        "PNG",
    ),
}


def openai(data: bytes) -> tuple[str, Any, str]:
    parts = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": url_of(data)}}]
    body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": parts}], "max_tokens": 2}
    return "/v1/chat/completions", body, "messages[1].content[1]"


def responses(data: bytes) -> tuple[str, Any, str]:
    parts = [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": url_of(data)}]
    body = {"instructions": "s", "input": [{"role": "user", "content": parts}], "max_output_tokens": 16}
    return "/v1/responses", body, "input[0].content[1]"


def anthropic(data: bytes) -> tuple[str, Any, str]:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    parts = [{"type": "text", "text": "x"}, {"type": "image", "source": source}]
    body = {"system": "s", "messages": [{"role": "user", "content": parts}], "max_tokens": 2}
    return "/v1/messages", body, "messages[0].content[1]"


def ollama(data: bytes) -> tuple[str, Any, str]:
    message = {"role": "user", "content": "x", "images": [base64.b64encode(data).decode()]}
    body = {"messages": [{"role": "system", "content": "s"}, message], "stream": False, "options": {"num_predict": 2}}
    return "/api/chat", body, "messages[1].images[0]"


def ollama_generate(data: bytes) -> tuple[str, Any, str]:
    body = {"system": "s", "prompt": "x", "images": [base64.b64encode(data).decode()], "stream": False}
    return "/api/generate", {**body, "options": {"num_predict": 2}}, "images[0]"


APIS: dict[str, Callable[[bytes], tuple[str, Any, str]]] = {
    each.__name__: each for each in (openai, responses, anthropic, ollama, ollama_generate)
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("bad")
    smolvlm(made)
    return made


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[Live]:
    with build_server(str(folder), OPTIONS) as built, serving(built.parts) as made:
        yield made


@pytest.fixture(scope="module")
def blind(folder: Path) -> Iterator[Live]:
    with build_server(str(folder), {**OPTIONS, "images": "off"}) as built, serving(built.parts) as made:
        yield made


def post(live: Live, api: str, data: bytes) -> tuple[int, str, str]:
    """The status, the whole text of the answer, and the field that it must name."""
    path, body, field = APIS[api](data)
    body["model"] = live.get("/v1/models").json["data"][0]["id"]
    reply = live.post(path, body)
    return reply.status, reply.body.decode(), field


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", BAD)
def test_one_clear_error_in_every_api(live: Live, api: str, name: str) -> None:
    data, words = BAD[name]
    status, said, field = post(live, api, data)
    assert status == 400 and words in said and field in said
    assert "Traceback" not in said and "0x" not in said
    assert post(live, api, FILE)[0] == 200


@pytest.mark.parametrize("api", APIS)
def test_a_model_that_does_not_see_says_so_in_every_api(blind: Live, api: str) -> None:
    status, said, field = post(blind, api, FILE)
    assert status == 400 and field in said and "reads no images" in said
    assert blind.get("/health").status == 200


def test_an_image_of_an_earlier_turn_is_left_out_by_a_model_that_does_not_see(blind: Live) -> None:
    path, body, _ = openai(FILE)
    body["messages"] += [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    assert blind.post(path, body).status == 200


def test_images_in_results_of_tools_are_named_by_their_place(live: Live) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"%PDF-1.7").decode()}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": source}]}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [call]}]
    found = live.post("/v1/messages", {"messages": [*turns, {"role": "user", "content": [result]}], "max_tokens": 2})
    assert found.status == 400 and "messages[2].content[0].content[0]" in found.body.decode()


@pytest.mark.parametrize("api", ("openai", "responses", "anthropic", "ollama"))
def test_too_many_images_in_every_api(live: Live, api: str) -> None:
    path, body, _ = APIS[api](png(picture(2, 2)))
    message = (body.get("messages") or body["input"])[-1]
    name = "images" if api == "ollama" else "content"
    message[name] = message[name][-1:] * 33
    body["model"] = live.get("/v1/models").json["data"][0]["id"]
    reply = live.post(path, body)
    assert reply.status == 400 and "32 images" in reply.body.decode()


@pytest.fixture(scope="module")
def decoder() -> Iterator[ImageDecoder]:
    made = ImageDecoder(ImageLimits(pixels=1_000_000))
    yield made
    made.close()


def whole(width: int, height: int) -> tuple[list[Any], int]:
    return [("tile", 0, 0, width, height)], 3 * width * height


SHOWN: dict[str, bytes] = {
    "alpha": saved(Image.new("RGBA", (4, 4), (255, 0, 0, 0)), "PNG"),
    "palette with alpha": saved(Image.new("P", (4, 4), 0), "PNG", transparency=0),
    "grey with alpha": saved(Image.new("LA", (4, 4), (0, 0)), "PNG"),
    "16 bits": saved(Image.new("I;16", (4, 4), 0xFFFF), "PNG"),
    "CMYK": saved(Image.new("CMYK", (4, 4), (0, 0, 0, 0)), "JPEG", quality=100),
    "animation": saved(
        Image.new("RGB", (4, 4), "white"), "GIF", save_all=True, append_images=[Image.new("RGB", (4, 4), "black")]
    ),
    "animated WebP": saved(
        Image.new("RGB", (4, 4), "white"),
        "WEBP",
        lossless=True,
        save_all=True,
        append_images=[Image.new("RGB", (4, 4), "black")],
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_of_unusual_files_is_white(decoder: ImageDecoder, name: str) -> None:
    assert decoder.tiles(SHOWN[name], whole) == b"\xff" * 48


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_corner_is_where_its_camera_says(decoder: ImageDecoder, turn: int) -> None:
    image, exif = Image.new("RGB", (3, 2), "white"), Image.Exif()
    image.putpixel((0, 0), (0, 0, 0))
    exif[0x0112] = turn
    found = decoder.tiles(saved(image, "PNG", exif=exif), whole)
    width, height = (3, 2) if turn < 5 else (2, 3)
    x, y = {1: (0, 0), 2: (1, 0), 3: (1, 1), 4: (0, 1), 5: (0, 0), 6: (1, 0), 7: (1, 1), 8: (0, 1)}[turn]
    at = 3 * (y * (height - 1) * width + x * (width - 1))
    assert len(found) == 18 and found[at : at + 3] == b"\0\0\0" and found.count(0) == 3


def damaged(data: bytes, dice: random.Random) -> bytes:
    """The file with bytes changed, cut out or added, or with the end cut off. The first bytes, which give the format,
    stay."""
    made = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        at, kind = dice.randrange(12, max(13, len(made))), dice.randrange(4)
        if kind == 0:
            made[at : at + 1] = bytes([dice.randrange(256)])
        elif kind == 1:
            del made[at : at + dice.randrange(1, 9)]
        elif kind == 2:
            made[at:at] = dice.randbytes(dice.randrange(1, 9))
        else:
            del made[dice.randrange(12, max(13, len(made))) :]
    return bytes(made)


@pytest.mark.parametrize("kind", ("PNG", "JPEG", "WEBP", "GIF", "BMP"))
def test_damaged_files_are_read_or_refused(decoder: ImageDecoder, kind: str) -> None:
    """The process is limited in memory and time. Whatever it does with a file, the next one is read."""
    image = picture(24, 16)
    seeds = [saved(image, kind), saved(image.convert("L"), kind)]
    if kind == "JPEG":
        seeds.append(saved(image, kind, progressive=True))
    if kind == "WEBP":
        seeds.append(saved(image, kind, lossless=True))
    dice = random.Random(f"{SEED} {kind}")
    refused = 0
    for _ in range(DAMAGED):
        data = damaged(dice.choice(seeds), dice)
        sizes: list[int] = []

        def rule(width: int, height: int, sizes: list[int] = sizes) -> tuple[list[Any], int]:
            steps, count = whole(width, height)
            sizes.append(count)
            return steps, count

        try:
            assert len(decoder.tiles(data, rule)) == sizes[0] <= 3_000_000
        except InvalidRequest as error:
            refused += 1
            assert error.param == "image" and "0x" not in str(error)
    assert refused
    assert len(decoder.tiles(seeds[0], whole)) == 3 * 24 * 16
