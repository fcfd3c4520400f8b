"""Everything the app is made of, as arguments; nothing is looked up."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from twostroke.cost.explain.explanation import Explanation
from twostroke.cost.work import Work
from twostroke.engine.async_engine import AsyncEngine
from twostroke.runner.retrieval.embedder import Embedder
from twostroke.runner.retrieval.reranker import Reranker
from twostroke.server.adapters import ServedAdapters
from twostroke.server.api.changed.client_lines import ClientLines
from twostroke.server.api.field_check import FieldCheck
from twostroke.server.card import ModelCard
from twostroke.server.facts import Listener
from twostroke.server.gate.body_budget import BODY_MEMORY_BYTES, BodyBudget, most_of_one_body
from twostroke.server.gate.door import Door
from twostroke.server.gate.image_desk import ImageDesk
from twostroke.server.gate.lanes import Lanes
from twostroke.server.gate.quarantine import Quarantine
from twostroke.server.gate.reach import Reach
from twostroke.server.live.view import EngineView
from twostroke.server.slots.kept import Slots
from twostroke.server.stored.chats import StoredChats
from twostroke.server.stored.work import StoredWork
from twostroke.server.telemetry.logs import request_ended
from twostroke.server.telemetry.metrics import ServerMetrics
from twostroke.text.chat_template import ChatTemplate
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.format import Format
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.pooling import Task

if TYPE_CHECKING:
    from twostroke.images.eyes import Eyes, Looks


def new_hex_id() -> str:
    """32 hexadecimal digits that cannot be guessed."""
    return uuid.uuid4().hex


def nothing_known(_request_id: str) -> Sequence[Explanation]:
    """The explanations of a server without a ledger: none."""
    return ()


class Limits(Struct, frozen=True):
    """Caps that hold before any work is done for a request (the queue's are the door's).

    deadline_s: longest time from a request's arrival to the end of its answer; None for no end.
    heartbeat_s: silence on a stream after which a comment is sent. stalled_s: how long a client may take
    nothing of an answer before its request is dropped; crowded_s: the same, after which it rests where its client's own
    buffer is full and others wait for a place. body_idle_s: longest gap between two pieces of a request's body. body_s:
    longest time for all of it. header_s: until a request's headers are complete.
    """

    body_bytes: int = most_of_one_body(BODY_MEMORY_BYTES)
    json_depth: int = 64
    choices: int = 512
    deadline_s: float | None = None
    heartbeat_s: float = 15.0
    stalled_s: float = 30.0
    crowded_s: float = 0.25
    body_idle_s: float = 30.0
    body_s: float = 120.0
    header_s: float = 10.0


@dataclass(slots=True)
class Closing:
    """began: the server is asked to end; what streams without an end of its own should end now."""

    began: bool = False


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What `create_app` needs.

    context_tokens: longest prompt and answer together. defaults: sampling
    values of the model's generation_config, by SamplingParams name. created_s: Unix time shown for the model.
    loopback_only: accept only Host and Origin headers that name this machine (run() sets it from the address).
    wall_clock: Unix seconds, for `created`. explain: returns the explanations of a request's completions; none for an
    unknown id. special_texts: the vocabulary's special tokens by their role, as eos_token. work: FLOPs and bytes of all
    steps. door: bounds on what waits. bodies: bounds on what comes in. lanes: threads that read request bodies.
    fields: what is said of fields that are not known. client_lines: which lines of clients are no text for the model.
    drain_s: seconds that running requests have after a signal.
    quarantine: requests that ran at crashes. view: what the live view reads. listeners: called for each HTTP request at
    its end. adapters: names next to served_name that requests may ask for. embedder, reranker:
    what makes prompts of texts; both None where the model generates text. reach: how a proxy or a browser gets here.
    other_names: further names of the model. format: how the model writes its turns. card: what lists of models show.
    eyes: what opens images in messages; None for a model that reads none. looks: what finds those of the request that
    is read now; None for eyes. desk: where they are opened. stored: the work that is kept; None for none.
    chats: the page's chats that are kept here; None where they stay in browsers. slots: what llama.cpp's slots hold;
    None where no pages are kept on a disk.
    loading: how far the model's load is, in words; empty while it takes requests. stays: it is loaded as long as the
    server runs.
    """

    engine: AsyncEngine
    tokenizer: Tokenizer
    template: ChatTemplate | None
    served_name: str
    context_tokens: int
    api_key: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    version: str = "0"
    fingerprint: str = "twostroke"
    special_texts: Mapping[str, str] = field(default_factory=dict)
    created_s: int = 0
    loopback_only: bool = True
    limits: Limits = field(default_factory=Limits)
    door: Door = field(default_factory=Door)
    bodies: BodyBudget = field(default_factory=BodyBudget)
    lanes: Lanes = field(default_factory=Lanes)
    fields: FieldCheck = field(default_factory=FieldCheck)
    client_lines: ClientLines = field(default_factory=ClientLines)
    drain_s: float = 30.0
    quarantine: Quarantine = field(default_factory=Quarantine)
    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    new_id: Callable[[], str] = new_hex_id
    wall_clock: Callable[[], float] = time.time
    explain: Callable[[str], Sequence[Explanation]] = nothing_known
    work: Callable[[], Work] = Work
    view: EngineView = field(default_factory=EngineView)
    closing: Closing = field(default_factory=Closing)
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    eyes: Eyes | None = None
    looks: Looks | None = None
    desk: ImageDesk = field(default_factory=ImageDesk)
    listeners: Sequence[Listener] = (request_ended,)
    adapters: ServedAdapters = field(default_factory=ServedAdapters)
    format: Format = FORMATS["hermes"]
    reach: Reach = field(default_factory=Reach)
    other_names: tuple[str, ...] = ()
    card: ModelCard = field(default_factory=ModelCard)
    stored: StoredWork | None = None
    chats: StoredChats | None = None
    slots: Slots | None = None
    loading: Callable[[], str] = str
    stays: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model itself, the one for messages first."""
        return (self.served_name, *self.other_names)

    @property
    def task(self) -> Task:
        """What the model is served for."""
        if self.embedder is not None:
            return Task.EMBED
        return Task.GENERATE if self.reranker is None else Task.RERANK
