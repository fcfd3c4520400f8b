"""POST /v1/texts: the text of a PDF file, for the page's attachments."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.admission import Admission
from twostroke.server.api.sse import line_json
from twostroke.server.attached.pdf import has_pypdf, text_of_pdf
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.body import reading

AT_ONCE = 2
"""How many PDF files are read at a time, for all clients together."""
NO_READER = Problem(
    501,
    "PDF files are not read here: pypdf is not installed. Install it with: pip install 'twostroke[pdf]'",
    "not_supported_error",
    code="no_pdf_reader",
)


def text_routes(admission: Admission) -> list[Route]:
    """Returns the one route, POST /v1/texts, which answers with the text of the PDF file in the request's body."""
    places = asyncio.Semaphore(AT_ONCE)

    async def endpoint(request: Request) -> Response:
        if not has_pypdf():
            raise HttpProblem(NO_READER)
        async with places, reading(request, admission) as body:
            found = await asyncio.to_thread(text_of_pdf, body)
        return Response(line_json(msgspec.to_builtins(found)), media_type="application/json")

    return [Route("/v1/texts", endpoint, methods=["POST"])]
