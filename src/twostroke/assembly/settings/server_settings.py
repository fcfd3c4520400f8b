"""The settings of a server, in groups by the part of it that uses them."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.assembly.settings.option import Field, Group, ListOption, NamesOption, Option
from twostroke.assembly.settings.option_values import (
    each,
    one_of,
    parse_bytes,
    parse_count,
    parse_hosts,
    parse_keep_alive,
    parse_mode,
    parse_name_list,
    parse_origins,
    parse_port,
    parse_prefix,
    parse_seconds,
    parse_switch,
    parse_text,
    parse_tool_server,
    parse_url,
)


@dataclass(frozen=True, eq=False, repr=False)
class ListenSettings(Group):
    """Settings of where the server listens, and who may ask."""

    host: Option[str] = Option("ADDRESS", parse_text, "Address to listen on.", "127.0.0.1")
    port: Option[int] = Option("PORT", parse_port, "Port to listen on; 0 picks a free one.", "8000")
    api_key: Option[str | None] = Option(
        "KEYS",
        parse_text,
        "Key that clients must send as a bearer token; several separated by commas, each with quotas of its own.",
        "none (loopback only)",
        secret=True,
    )
    uds: Option[str | None] = Option(
        "FILE",
        parse_text,
        "Listen on this socket of the file system, and on no port.",
        "none: on a port",
    )
    uds_mode: Option[str] = Option(
        "MODE",
        parse_mode,
        "Permissions of that file, such as 660 for a proxy of its group.",
        "600",
    )
    allow_host: NamesOption = NamesOption(
        "NAMES",
        parse_hosts,
        "Names that a proxy sends in Host, next to this machine's own; *.example.org is all below, * is any name.",
        "none (loopback only)",
        also=("--allowed-hosts",),
    )
    allow_origin: NamesOption = NamesOption(
        "ORIGINS",
        parse_origins,
        "Pages of other sites that may ask from a browser (CORS), such as https://app.example.org; * is any page.",
        "none",
    )


@dataclass(frozen=True, eq=False, repr=False)
class TalkSettings(Group):
    """Settings of how conversations are written for the model, and how its answers are read."""

    chat_template: Option[str | None] = Option(
        "FILE",
        parse_text,
        "File with a chat template (Jinja, or a chat_template.json) that is used in place of the model's own.",
        "the model's own",
    )
    tool_format: Option[str | None] = Option(
        "NAME",
        parse_text,
        "How the model writes calls of tools, by the name that `twostroke config MODEL --talk` prints.",
        "found by its template and its vocabulary",
    )
    reasoning_format: Option[str | None] = Option(
        "NAME",
        parse_text,
        "The format whose marks stand around thoughts, or none.",
        "found by its template and its vocabulary",
    )


@dataclass(frozen=True, eq=False, repr=False)
class NameSettings(Group):
    """Settings of the path and the names under which clients find the model. other_names: its further names, after the
    first."""

    root_path: Option[str] = Option(
        "PATH",
        parse_prefix,
        "Path at which a proxy shows this server, such as /llm.",
        "none",
    )
    served_name: Option[str] = Option(
        "NAMES",
        parse_name_list,
        "Model name that clients use; several separated by commas mean the same model.",
        "the folder's or repository's name",
    )
    other_names: Field[tuple[str, ...]] = Field()


@dataclass(frozen=True, eq=False, repr=False)
class LoadSettings(Group):
    """Limits on requests, tokens, bytes and time."""

    queued_requests: Option[int] = Option(
        "COUNT",
        parse_count,
        "Most requests that wait for their first token.",
        "1024",
    )
    queued_tokens: Option[int] = Option("COUNT", parse_count, "Most prompt tokens that wait.", "16 times the KV cache")
    key_requests: Option[int | None] = Option("COUNT", parse_count, "Most requests of one key at a time.", "no bound")
    key_tokens: Option[int | None] = Option(
        "COUNT",
        parse_count,
        "Most tokens of one key in a minute, prompt and output.",
        "no bound",
    )
    body_memory: Option[int] = Option(
        "SIZE",
        parse_bytes,
        "Most bytes of request bodies that are read at a time.",
        "256MiB",
    )
    deadline: Option[float | None] = Option(
        "TIME",
        parse_seconds,
        "Longest time from a request's arrival to its answer's end.",
        "no end",
    )
    drain: Option[float] = Option(
        "TIME",
        parse_seconds,
        "After SIGTERM, how long running requests may take to finish.",
        "30s",
    )


@dataclass(frozen=True, eq=False, repr=False)
class RequestSettings(Group):
    """Settings of what is logged about requests, and which of their fields are read."""

    log: Option[str] = Option(
        "FORMAT",
        one_of("text", "json"),
        "Log lines as text (warnings; with -v every request) or json (every request).",
        "text",
    )
    strict_fields: Option[bool] = Option(
        "",
        parse_switch,
        "Refuse requests with a field that looks misspelt, as temprature; without it such a field is ignored and named "
        "in the header X-Twostroke-Ignored-Fields, like every field that is not known.",
        "off",
        switch=True,
    )
    client_lines: Option[str] = Option(
        "RULE",
        one_of("drop", "keep"),
        "What to do with lines of metadata that known clients write in front of the system text and change with each "
        "request, as Claude Code's x-anthropic-billing-header. With drop they are taken out, so that the prefix cache "
        "finds what follows.",
        "drop",
    )


@dataclass(frozen=True, eq=False, repr=False)
class StoredSettings(Group):
    """Settings of what the server keeps for its clients: responses, files and batches, and the chats of its web page.
    """

    stored_work: Option[str | None] = Option(
        "FOLDER",
        parse_text,
        "The server keeps responses, conversations, files and batches in this folder. This turns on `store`, "
        "previous_response_id, background, /v1/conversations, /v1/files, /v1/batches and /v1/messages/batches. Each "
        "client sees only its own work. Batches go on after a restart.",
        "none: nothing is kept",
    )
    stored_bytes: Option[int] = Option(
        "SIZE",
        parse_bytes,
        "Most bytes of each kind of stored work of one client.",
        "1GB",
    )
    stored_age: Option[float] = Option("TIME", parse_seconds, "Stored work that is older is removed.", "30 days")
    chats: Option[str | None] = Option(
        "FOLDER",
        parse_text,
        "The server keeps the chats of its page in this folder, so that every browser shows them. Each API key sees "
        "its own chats alone; without keys all who reach the server share them.",
        "none: chats stay in the browser",
    )
    chats_bytes: Option[int] = Option("SIZE", parse_bytes, "Most bytes of the chats of one client.", "1GB")


@dataclass(frozen=True, eq=False, repr=False)
class PageSettings(Group):
    """Settings of the MCP servers whose tools users of this server's web page may call."""

    mcp: ListOption[tuple[str, str]] = ListOption(
        "NAME=URL",
        each(parse_tool_server),
        "Users of the page may call the tools of this MCP server (streamable HTTP); may be given several times. This "
        "server passes the messages on, and each call waits until the user runs it.",
        "none",
        secret=True,
    )


@dataclass(frozen=True, eq=False, repr=False)
class TraceSettings(Group):
    """Settings of where the server sends OpenTelemetry spans."""

    otlp: Option[str | None] = Option("URL", parse_url, "Send OpenTelemetry spans to this OTLP/HTTP collector.", "none")


@dataclass(frozen=True, eq=False, repr=False)
class SeveralSettings(Group):
    """Settings of a server of several models: which models it serves, and when they are loaded."""

    models: Option[str] = Option(
        "FILE",
        parse_text,
        "Serve the models that this TOML file names, each with options of its own.",
        "none",
    )
    models_dir: Option[str] = Option(
        "FOLDER",
        parse_text,
        "Serve each GGUF file and each model folder in this folder, loaded when a request asks for it.",
        "none",
    )
    store: Option[bool] = Option(
        "",
        parse_switch,
        "Serve every model that is on this machine (`twostroke list`), loaded when a request asks for it.",
        "off",
        switch=True,
    )
    pulls: Option[bool] = Option(
        "",
        parse_switch,
        "Users of the page may fetch further models from the hub, after seeing size, licence and fit.",
        "off",
        switch=True,
    )
    keep_alive: Option[float] = Option(
        "TIME",
        parse_keep_alive,
        "How long a model stays loaded after its last request: 5m, 0 (it leaves at once), -1 (until another one needs "
        "its memory).",
        "5m; -1 for models that are loaded at the start",
    )
    max_loaded: Option[int] = Option(
        "COUNT",
        parse_count,
        "Most models that are loaded at a time.",
        "as many as fit in memory",
    )
    load_wait: Option[float] = Option(
        "TIME",
        parse_seconds,
        "Longest wait of a request for its model to be loaded.",
        "300s",
    )
