"""Texts of PDF files: the text of a file comes back, and an error in a file is one clear error of that file alone."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

import pytest

from tests.serve.fakes import fake_parts
from tests.serve.harness import Live, Reply, serving
from tests.tiers import fewer
from twostroke.server.attached import routes
from twostroke.server.attached.pdf import PdfLimits, has_pypdf, text_of_pdf
from twostroke.types.errors import InvalidRequest

needs_pypdf = pytest.mark.skipif(not has_pypdf(), reason="pypdf is not installed: pip install -e '.[test]'")


def pdf(*pages: bytes, packed: bool = False, more: bytes = b"") -> bytes:
    """A PDF file with these streams of drawing commands, one for each page. more: entries of the trailer."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, len(pages)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, commands in enumerate(pages):
        data = zlib.compress(commands, 9) if packed else commands
        way = b"/Filter /FlateDecode " if packed else b""
        font = b"/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(
            b"<< /Type /Page /Parent 2 0 R %b /MediaBox [0 0 600 800] /Contents %d 0 R >>" % (font, 5 + 2 * number)
        )
        objects.append(b"<< %b/Length %d >>\nstream\n%b\nendstream" % (way, len(data), data))
    made, places = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count = len(objects) + 1
    made += b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n" % (count, table)
    begin = made.index(b"xref\n")
    return made + b"<< /Size %d /Root 1 0 R %b >>\nstartxref\n%d\n%%%%EOF\n" % (count, more, begin)


def shown(text: str) -> bytes:
    """Commands that draw a line of text."""
    return f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET".encode()


GOOD = pdf(shown("The pelican"), b"", shown("crosses the river."))


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving(fake_parts()) as made:
        yield made


def ask(live: Live, data: bytes) -> Reply:
    return live.call("POST", "/v1/texts", data, {"content-type": "application/pdf"})


@needs_pypdf
def test_the_text_of_all_pages_comes_back(live: Live) -> None:
    assert ask(live, GOOD).json == {"text": "The pelican\n\ncrosses the river.", "pages": 3, "empty": 1}
    assert ask(live, pdf(shown("packed"), packed=True)).json["text"] == "packed"
    assert live.get("/v1/engine/about").json["pdf"] is True


LOCKED = b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O (%b) /U (%b) >> /ID [(a) (a)]" % (b"o" * 32, b"u" * 32)
BAD = {
    "no PDF": (b"hello", "no PDF file"),
    "nothing": (b"", "no PDF file"),
    "a mark alone": (b"%PDF-1.7", "cannot be read"),
    "a scan": (pdf(b"", b""), "no text"),
    "no pages": (pdf(), "no text"),
    "locked": (pdf(shown("x"), more=LOCKED), "locked"),
    "rubbish": (b"%PDF-1.7\n" + bytes(range(256)) * 40, "cannot be read"),
}


@needs_pypdf
@pytest.mark.parametrize("kind", BAD)
def test_a_wrong_file_is_one_clear_error_and_the_next_is_read(live: Live, kind: str) -> None:
    data, words = BAD[kind]
    refused = ask(live, data)
    assert refused.status == 400 and words in refused.error["message"], refused.body
    assert ask(live, GOOD).status == 200


@needs_pypdf
def test_damaged_files_never_end_more_than_their_own_request(live: Live) -> None:
    dice = random.Random(20261129)
    for _ in range(fewer(12, quick=3)):
        data = bytearray(GOOD)
        for _ in range(dice.choice([1, 5, 50])):
            data[dice.randrange(5, len(data))] = dice.randrange(256)
        assert ask(live, bytes(data)[: dice.choice([len(data), len(data) // 2])]).status in (200, 400)


@needs_pypdf
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (PdfLimits(file_bytes=100), "too large"),
        (PdfLimits(pages=2), "3 pages"),
        (PdfLimits(characters=12), "more than 12 characters"),
        (PdfLimits(wall_s=0.001), "too long"),
    ],
)
def test_limits_hold(limits: PdfLimits, words: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        text_of_pdf(GOOD, limits)
    assert words in str(raised.value) and raised.value.fix


@needs_pypdf
def test_a_file_that_unpacks_to_gigabytes_is_refused() -> None:
    bomb = pdf(b" " * (1 << 29), packed=True)
    assert len(bomb) < 2 << 20
    with pytest.raises(InvalidRequest, match="cannot be read|too long|no text"):
        text_of_pdf(bomb, PdfLimits(memory_bytes=512 << 20))


def test_without_pypdf_it_is_said_how_to_get_it(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "has_pypdf", lambda: False)
    refused = ask(live, GOOD)
    assert refused.status == 501 and "twostroke[pdf]" in refused.error["message"]
