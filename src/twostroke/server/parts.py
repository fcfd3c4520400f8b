"""The objects that the server's app is made from, as arguments: the app looks nothing up in global variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twostroke.cost.explain.explanation import Explanation
from twostroke.cost.work import Work
from twostroke.server.admission import Access, Admission
from twostroke.server.facts import Listener
from twostroke.server.serving import Serving
from twostroke.server.telemetry.logs import request_ended
from twostroke.server.telemetry.metrics import ServerMetrics


def nothing_known(_request_id: str) -> Sequence[Explanation]:
    """Returns no explanations. A server that records no times of requests uses it for /v1/requests/{id}/explain."""
    return ()


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What a server reports about itself. listeners: called for each HTTP request at its end. explain: returns the
    explanations of a request's completions; none for an unknown id. work: returns the FLOPs and bytes of all steps."""

    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    listeners: Sequence[Listener] = (request_ended,)
    explain: Callable[[str], Sequence[Explanation]] = nothing_known
    work: Callable[[], Work] = Work


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The parts that `create_app` needs. Each group of routes takes the part that it reads."""

    serving: Serving
    admission: Admission = field(default_factory=Admission)
    access: Access = field(default_factory=Access)
    telemetry: Telemetry = field(default_factory=Telemetry)
