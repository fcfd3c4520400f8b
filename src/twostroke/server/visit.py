"""The sender and the deadline of a request, which the admission and the generation of its answer need."""

from __future__ import annotations

from msgspec import Struct
from starlette.types import Scope

from twostroke.server.errors import HttpProblem
from twostroke.server.gate.refusals import BAD_DEADLINE
from twostroke.server.gate.security import CLIENT

TIMEOUT_HEADER = b"x-request-timeout-ms"
MOST_MS = 24 * 3600 * 1000
_ARRIVAL = "twostroke.arrival_s"


class Visit(Struct, frozen=True):
    """What the admission of a request depends on. sender: the label of the sender's API key, "" without keys.
    deadline_s: the clock's time at which the request must end; None for no deadline."""

    sender: str = ""
    deadline_s: float | None = None


def note_arrival(scope: Scope, now_s: float) -> None:
    """Stores the arrival time of a request in its scope, in the outermost middleware: deadlines count from this time.
    """
    scope[_ARRIVAL] = now_s


def visit_of(scope: Scope, longest_s: float | None, now_s: float) -> Visit:
    """Returns the sender of a request, and the earlier one of the server's and the client's deadline. longest_s: the
    server's. Raises HttpProblem (400) for a malformed header with the client's."""
    sent = next((value for name, value in scope["headers"] if name.lower() == TIMEOUT_HEADER), None)
    limits = [] if longest_s is None else [longest_s]
    if sent is not None:
        if not sent.isdigit() or not 0 < int(sent[:12]) <= MOST_MS or len(sent) > 12:
            raise HttpProblem(BAD_DEADLINE)
        limits.append(int(sent) / 1e3)
    deadline_s = scope.get(_ARRIVAL, now_s) + min(limits) if limits else None
    return Visit(scope.get(CLIENT, ""), deadline_s)
