"""The objects that read the requests for one model and write its answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from twostroke.engine.async_engine import AsyncEngine
from twostroke.runner.retrieval.embedder import Embedder
from twostroke.runner.retrieval.reranker import Reranker
from twostroke.server.adapters import ServedAdapters
from twostroke.server.api.changed.client_lines import ClientLines
from twostroke.server.api.fields.field_check import FieldCheck
from twostroke.server.attached.tool_servers import ToolServer
from twostroke.server.card import ModelCard
from twostroke.server.live.view import EngineView
from twostroke.server.slots.kept import Slots
from twostroke.server.stored.chats import StoredChats
from twostroke.server.stored.work import StoredWork
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.format import Format
from twostroke.text.templates.chat_template import ChatTemplate
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.pooling import Task

if TYPE_CHECKING:
    from twostroke.images.eyes import Eyes, Looks


def new_hex_id() -> str:
    """Returns 32 hexadecimal digits that cannot be guessed."""
    return uuid.uuid4().hex


class RequestCaps(Struct, frozen=True):
    """The limits of one request. json_depth: the most levels of its JSON. choices: the most completions of all its
    prompts."""

    json_depth: int = 64
    choices: int = 512


@dataclass(frozen=True, slots=True)
class Serving:
    """One model as clients see it.

    context_tokens: the most tokens of a prompt and its answer together. served_name, other_names: the model's names;
    error messages use served_name. defaults: sampling values of the model's generation_config, by their names in
    SamplingParams. created_s: the Unix time that is shown for the model. special_texts: the vocabulary's special tokens
    by their role, such as eos_token. fields: finds and reports unknown fields of requests. client_lines: removes lines
    of metadata that some clients write into the system message. format: how the model writes its answers. card: the
    facts that lists of models show. adapters: the adapters that requests may name in place of served_name. embedder,
    reranker: make prompts of texts; both are None when the model generates text. eyes: opens images in messages; None
    for a model that reads no images. looks: the object that finds the images of one request, in place of `eyes`; None
    where `eyes` does this. view: the parts of the engine that the live view reads. stored: the batches, files and
    responses that the server stores; None where it stores none. chats: the web page's chats that the server stores;
    None when they stay in browsers. slots: the content of llama.cpp's slots; None when no pages are kept on a disk.
    tool_servers: the MCP servers that the web page may use. wall_clock: returns Unix seconds, for `created`. loading:
    returns the progress of the model's load in words; empty while the model takes requests. stays: True when the model
    is loaded as long as the server runs.
    """

    engine: AsyncEngine
    tokenizer: Tokenizer
    template: ChatTemplate | None
    context_tokens: int
    served_name: str = ""
    other_names: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    version: str = "0"
    fingerprint: str = "twostroke"
    special_texts: Mapping[str, str] = field(default_factory=dict)
    created_s: int = 0
    caps: RequestCaps = RequestCaps()
    fields: FieldCheck = field(default_factory=FieldCheck)
    client_lines: ClientLines = field(default_factory=ClientLines)
    format: Format = FORMATS["hermes"]
    card: ModelCard = field(default_factory=ModelCard)
    adapters: ServedAdapters = field(default_factory=ServedAdapters)
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    eyes: Eyes | None = None
    looks: Looks | None = None
    view: EngineView = field(default_factory=EngineView)
    stored: StoredWork | None = None
    chats: StoredChats | None = None
    slots: Slots | None = None
    tool_servers: tuple[ToolServer, ...] = ()
    new_id: Callable[[], str] = new_hex_id
    wall_clock: Callable[[], float] = time.time
    loading: Callable[[], str] = str
    stays: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model itself, without adapters; error messages use the first."""
        return (self.served_name, *self.other_names)

    @property
    def task(self) -> Task:
        """The task that the model is served for."""
        if self.embedder is not None:
            return Task.EMBED
        return Task.GENERATE if self.reranker is None else Task.RERANK
