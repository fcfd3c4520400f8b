"""Every option of the engine and the server: its name, its meaning, how its text is read.

The CLI's flags, the TWOSTROKE_* variables and docs/CONFIG.md are made from this one table.
"""

from __future__ import annotations

from twostroke.assembly.settings.image_options import IMAGE_OPTIONS
from twostroke.assembly.settings.option import Option
from twostroke.assembly.settings.option_values import (
    KEPT,
    WEIGHTS,
    one_of,
    parse_adapter,
    parse_address,
    parse_bytes,
    parse_count,
    parse_device,
    parse_disk,
    parse_hosts,
    parse_keep_alive,
    parse_mode,
    parse_names,
    parse_origins,
    parse_port,
    parse_prefix,
    parse_seconds,
    parse_speculate,
    parse_switch,
    parse_text,
    parse_url,
)
from twostroke.types.pooling import Pooling, Task

ENGINE_OPTIONS: tuple[Option, ...] = (
    Option("revision", "REV", parse_text, "Hub revision (branch, tag or commit) to use.", "main"),
    Option(
        "weights",
        "FORMAT",
        one_of(*WEIGHTS),
        "Weight format: f32, bf16, int8, int6, int5, int4, or stored (as a GGUF file has them).",
        "stored for GGUF, else int8 for a 16-bit checkpoint and f32 for a 32-bit one",
    ),
    Option(
        "kv_format",
        "FORMAT",
        one_of(*KEPT),
        "KV cache format: f32, bf16, int8 or int4.",
        "f32 or bf16 as the weights; else int8 (bf16 with latents and at level generic)",
    ),
    Option(
        "kv_memory",
        "SIZE",
        parse_bytes,
        "Memory for the KV cache, such as 2GB.",
        "90% of the free memory, at most what can be used",
    ),
    Option(
        "task",
        "TASK",
        one_of("auto", *Task),
        "What the model is served for: generate text, embed texts, or rerank documents. auto: what the checkpoint is "
        "made for.",
        "auto",
    ),
    Option(
        "pooling",
        "ROWS",
        one_of(*Pooling),
        "Which rows of a text make its embedding: the last, cls (the first), or the mean of all.",
        "what modules.json says, else last for a decoder and cls for an encoder",
    ),
    Option("context", "TOKENS", parse_count, "Longest prompt and answer together.", "the model's own, at most 32768"),
    Option(
        "ttft",
        "TIME",
        parse_seconds,
        "Objective: time to first token, such as 1s. Requests keep their place; one that would be late is refused.",
        "none: in order of arrival, no request is refused",
    ),
    Option(
        "itl",
        "TIME",
        parse_seconds,
        "Objective: 95% of a request's gaps between tokens, such as 50ms. Sizes each step's prefill.",
        "none: no gap beyond 250 ms, or 8 decode steps where one takes more than 50 ms",
    ),
    Option(
        "max_step_tokens",
        "TOKENS",
        parse_count,
        "For experts: most tokens of one engine step. With objectives a step's size follows from them, up to this; "
        "without, every step is filled to this.",
        "512 for prompts alone and fewer beside running streams; 2048 with objectives",
    ),
    Option("max_sequences", "COUNT", parse_count, "Sequences in one step.", "64"),
    *IMAGE_OPTIONS,
    Option("threads", "COUNT", parse_count, "CPU threads.", "the cores this process may use"),
    Option(
        "cpu_level",
        "LEVEL",
        one_of("generic", "avx2", "avxvnni", "avx512", "amx", "neon", "dotprod", "i8mm"),
        "Instruction-set level of the kernels: generic, avx2, avxvnni, avx512, amx; on aarch64 generic, neon, dotprod, "
        "i8mm.",
        "the best that this CPU has",
    ),
    Option(
        "tensor_parallel",
        "COUNT",
        parse_count,
        "Processes that each hold a share of every layer's rows and heads, and compute each step together.",
        "1",
    ),
    Option(
        "pipeline_parallel",
        "COUNT",
        parse_count,
        "Processes that each hold a run of layers: for a model that no process has memory for.",
        "1",
    ),
    Option(
        "rank_addresses",
        "HOST:PORT",
        parse_address,
        "Where the other ranks or stages listen (`twostroke rank`), in their order, with commas between.",
        "none: they are processes of this machine",
        many=True,
    ),
    Option(
        "rank_timeout",
        "TIME",
        parse_seconds,
        "Longest wait of one rank or stage for another within a step; after it the engine ends and names the one that "
        "hangs.",
        "60s",
    ),
    Option(
        "device",
        "DEVICE",
        parse_device,
        "Where the model runs: cpu, cuda or cuda:N (an NVIDIA GPU of compute capability 8.0 or higher), or auto: cuda "
        "where a device can run this model, else the CPU.",
        "cpu",
    ),
    Option(
        "early_steps",
        "WHEN",
        one_of("auto", "on", "off"),
        "Begin the next decode step on a GPU before the host has looked at the tokens of this one, so that the GPU "
        "does not wait for the host; the answers stay the same, bit for bit.",
        "auto: on for a GPU, off for the CPU, models that keep states, and where a model or its heads guess",
    ),
    Option(
        "speculate",
        "WAY",
        parse_speculate,
        "Guess the next tokens and verify several in a step, where that is faster; the answers stay the same, bit for "
        "bit. ngram: from the request's own text. suffix: from finished answers under the same salt, too. auto: "
        "suffix. draft:MODEL: by a small model of the same vocabulary (draft:spark-draft for spark). medusa:PATH: by "
        "heads on the model's hidden state, in a folder with medusa_lm_head.safetensors (medusa alone: spark's). "
        "eagle:PATH: by a layer of EAGLE 1, 2 or 3 over hidden states (eagle alone: spark's). mtp: by the layer of the "
        "model's own checkpoint that predicts a further token (DeepSeek-V3, GLM-4.5, Qwen3-Next and those like them).",
        "auto; off for models with states",
    ),
    Option("cache", "FOLDER", parse_text, "Folder for packed weights; 'off' keeps none.", "$XDG_CACHE_HOME/twostroke"),
    Option(
        "cache_limit",
        "SIZE",
        parse_bytes,
        "Most bytes of packed weights in that folder, such as 100GB. The files used longest ago are removed first, and "
        "never one in use.",
        "half of what the disk would have free without them",
    ),
    Option(
        "kv_disk",
        "SIZE",
        parse_disk,
        "Keep computed prompts on disk, in the folder kv of the cache folder, and read them after a restart where that "
        "is sooner than computing them: the most bytes of them, such as 10GB, auto (10GB, at most 5% of what is free), "
        "or off. What clients wrote can be derived from these files: they are readable by this user alone.",
        "off",
    ),
    Option("trace", "FILE", parse_text, "File for the record of every step, as JSON lines, whole at the end.", "none"),
)

SERVER_OPTIONS: tuple[Option, ...] = (
    Option("host", "ADDRESS", parse_text, "Address to listen on.", "127.0.0.1"),
    Option("port", "PORT", parse_port, "Port to listen on; 0 picks a free one.", "8000"),
    Option(
        "api_key",
        "KEYS",
        parse_text,
        "Key that clients must send as a bearer token; several with commas between, each with quotas of its own.",
        "none (loopback only)",
        secret=True,
    ),
    Option("uds", "FILE", parse_text, "Listen on this socket of the file system, and on no port.", "none: on a port"),
    Option("uds_mode", "MODE", parse_mode, "Permissions of that file, such as 660 for a proxy of its group.", "600"),
    Option(
        "allow_host",
        "NAMES",
        parse_hosts,
        "Names that a proxy sends in Host, besides this machine's own; *.example.org is all below, * is any name.",
        "none (loopback only)",
        many=True,
        also=("--allowed-hosts",),
    ),
    Option(
        "allow_origin",
        "ORIGINS",
        parse_origins,
        "Pages of other sites that may ask from a browser (CORS), such as https://app.example.org; * is any page.",
        "none",
        many=True,
    ),
    Option(
        "chat_template",
        "FILE",
        parse_text,
        "File with a chat template (Jinja, or a chat_template.json) that counts over the model's own.",
        "the model's own",
    ),
    Option(
        "tool_format",
        "NAME",
        parse_text,
        "How the model writes calls of tools, by the name that `twostroke config MODEL --talk` prints.",
        "found by its template and its vocabulary",
    ),
    Option(
        "reasoning_format",
        "NAME",
        parse_text,
        "The format whose marks stand around thoughts, or none.",
        "found by its template and its vocabulary",
    ),
    Option("root_path", "PATH", parse_prefix, "Path at which a proxy shows this server, such as /llm.", "none"),
    Option(
        "served_name",
        "NAMES",
        parse_names,
        "Model name that clients use; several with commas between mean the same model.",
        "the folder's or repository's name",
    ),
    Option("queued_requests", "COUNT", parse_count, "Most requests that wait for their first token.", "1024"),
    Option(
        "queued_tokens",
        "COUNT",
        parse_count,
        "Most prompt tokens that wait.",
        "16 times the KV cache",
    ),
    Option("key_requests", "COUNT", parse_count, "Most requests of one key at a time.", "no bound"),
    Option("key_tokens", "COUNT", parse_count, "Most tokens of one key in a minute, prompt and output.", "no bound"),
    Option("body_memory", "SIZE", parse_bytes, "Most bytes of request bodies that are read at a time.", "256MiB"),
    Option("deadline", "TIME", parse_seconds, "Longest time from a request's arrival to its answer's end.", "no end"),
    Option("drain", "TIME", parse_seconds, "After SIGTERM, how long running requests may take to finish.", "30s"),
    Option(
        "log",
        "FORMAT",
        one_of("text", "json"),
        "Log lines as text (warnings; with -v every request) or json (every request).",
        "text",
    ),
    Option(
        "strict_fields",
        "",
        parse_switch,
        "Refuse requests with a field that looks misspelt, as temprature; without it such a field is ignored and named "
        "in the header X-Twostroke-Ignored-Fields, like every field that is not known.",
        "off",
        switch=True,
    ),
    Option(
        "client_lines",
        "RULE",
        one_of("drop", "keep"),
        "What to do with lines of metadata that known clients write in front of the system text and change with each "
        "request, as Claude Code's x-anthropic-billing-header: drop takes them out, so that the prefix cache finds "
        "what follows.",
        "drop",
    ),
    Option(
        "stored_work",
        "FOLDER",
        parse_text,
        "The server keeps responses, conversations, files and batches in this folder. This turns on `store`, "
        "previous_response_id, background, /v1/conversations, /v1/files, /v1/batches and /v1/messages/batches. Each "
        "client sees only its own work. Batches go on after a restart.",
        "none: nothing is kept",
    ),
    Option("stored_bytes", "SIZE", parse_bytes, "Most bytes of each kind of stored work of one client.", "1GB"),
    Option("stored_age", "TIME", parse_seconds, "Stored work that is older is removed.", "30 days"),
    Option("otlp", "URL", parse_url, "Send OpenTelemetry spans to this OTLP/HTTP collector.", "none"),
)

ADAPTER_OPTIONS: tuple[Option, ...] = (
    Option(
        "adapter",
        "NAME=FOLDER",
        parse_adapter,
        "A LoRA adapter as PEFT saves it, asked for as a model of this name; may be given several times.",
        "none",
        many=True,
    ),
    Option(
        "adapter_folder",
        "FOLDER",
        parse_text,
        "Clients may load adapters that lie in this folder, and unload any: POST /v1/load_lora_adapter.",
        "none: they may not",
    ),
    Option("max_adapters", "COUNT", parse_count, "Most adapters at a time.", "those given; 8 more with a folder"),
    Option("adapter_rank", "COUNT", parse_count, "Largest rank of adapters that are loaded later.", "16"),
)

CLUSTER_OPTIONS: tuple[Option, ...] = (
    Option(
        "cluster_secret",
        "TEXT",
        parse_text,
        "Secret that a front and its replicas prove to each other; needed where an address is not loopback.",
        "none (loopback only)",
        secret=True,
    ),
)

MODELS_OPTIONS: tuple[Option, ...] = (
    Option(
        "models",
        "FILE",
        parse_text,
        "Serve the models that this TOML file names, each with options of its own.",
        "none",
    ),
    Option(
        "models_dir",
        "FOLDER",
        parse_text,
        "Serve each GGUF file and each model folder in this folder, loaded when a request asks for it.",
        "none",
    ),
    Option(
        "store",
        "",
        parse_switch,
        "Serve every model that is on this machine (`twostroke list`), loaded when a request asks for it.",
        "off",
        switch=True,
    ),
    Option(
        "keep_alive",
        "TIME",
        parse_keep_alive,
        "How long a model stays loaded after its last request: 5m, 0 (it leaves at once), -1 (until another one needs "
        "its memory).",
        "5m; -1 for models that are loaded at the start",
    ),
    Option("max_loaded", "COUNT", parse_count, "Most models that are loaded at a time.", "as many as fit in memory"),
    Option("load_wait", "TIME", parse_seconds, "Longest wait of a request for its model to be loaded.", "300s"),
)

BY_NAME: dict[str, Option] = {
    option.name: option
    for option in ENGINE_OPTIONS + SERVER_OPTIONS + ADAPTER_OPTIONS + CLUSTER_OPTIONS + MODELS_OPTIONS
}
