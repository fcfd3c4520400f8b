"""The settings of an engine, in groups by the part of it that uses them."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.assembly.settings.option import Field, Group, ListOption, NamesOption, Option
from twostroke.assembly.settings.option_values import (
    ENCODER_WEIGHTS,
    KEPT,
    WEIGHTS,
    each,
    member_of,
    one_of,
    parse_adapter,
    parse_address,
    parse_bytes,
    parse_count,
    parse_device,
    parse_disk,
    parse_image_hosts,
    parse_seconds,
    parse_speculate,
    parse_text,
)
from twostroke.ops.quant.formats import WEIGHT_NAMES
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.pooling import Pooling, Task
from twostroke.types.spec.formats import KVKind


@dataclass(frozen=True, eq=False, repr=False)
class ModelSettings(Group):
    """Settings of the model and the format of its weights."""

    model: Field[str] = Field()
    revision: Option[str | None] = Option("REV", parse_text, "Hub revision (branch, tag or commit) to use.", "main")
    weights: Option[str] = Option(
        "FORMAT",
        one_of(*WEIGHTS),
        f"Weight format: {', '.join(WEIGHT_NAMES)}, or stored (as a GGUF file has them).",
        "stored for GGUF, else int8 for a 16-bit checkpoint and f32 for a 32-bit one",
    )


@dataclass(frozen=True, eq=False, repr=False)
class CacheSettings(Group):
    """Settings of the cache of K and V. key_factors: the digest of the factors by which keys are scaled before they are
    rounded. kv_tokens: the number of tokens for which the cache has room."""

    kv_format: Option[str] = Option(
        "FORMAT",
        one_of(*KEPT),
        "KV cache format: f32, bf16, int8 or int4.",
        "f32 or bf16 as the weights; else int8 (bf16 with latents, with heads of 256 and more, and at level generic)",
    )
    kv_memory: Option[int] = Option(
        "SIZE",
        parse_bytes,
        "The most memory of the KV cache, such as 2GB. It is taken as requests come.",
        "90% of the free memory, at most what can be used",
    )
    kv_tokens: Field[int] = Field()
    key_factors: Field[str] = Field()

    @property
    def kind(self) -> KVKind:
        """The format of K and V."""
        return KVKind[self.kv_format.upper()]


@dataclass(frozen=True, eq=False, repr=False)
class TaskSettings(Group):
    """Settings of the task that the model is served for."""

    task: Option[str] = Option(
        "TASK",
        one_of("auto", *Task),
        "What the model is served for: generate text, embed texts, or rerank documents. auto: what the checkpoint is "
        "made for.",
        "auto",
    )
    pooling: Option[Pooling | None] = Option(
        "ROWS",
        member_of(Pooling),
        "Which rows of a text make its embedding: the last, cls (the first), or the mean of all.",
        "what modules.json names, else last for a decoder and cls for an encoder",
    )


@dataclass(frozen=True, eq=False, repr=False)
class StepSettings(Group):
    """Settings of the lengths of requests, the objectives, and the size of a step. step_limiter: the rule that limits
    the prompt tokens of steps which also decode. step_cost: the source of step times, where objectives promise times.
    """

    context: Option[int] = Option(
        "TOKENS",
        parse_count,
        "Longest prompt and answer together.",
        "the model's own, at most 32768",
    )
    ttft: Option[float | None] = Option(
        "TIME",
        parse_seconds,
        "Objective: time to first token, such as 1s. Requests keep their place; one that would be late is refused.",
        "none: in order of arrival, no request is refused",
    )
    itl: Option[float | None] = Option(
        "TIME",
        parse_seconds,
        "Objective: 95% of a request's gaps between tokens, such as 50ms. Sizes each step's prefill.",
        "none: no gap beyond 250 ms, or 8 decode steps where one takes more than 50 ms",
    )
    max_step_tokens: Option[int] = Option(
        "TOKENS",
        parse_count,
        "Most tokens of one engine step; rarely needed. With objectives a step's size follows from them, up to this; "
        "without, every step is filled to this.",
        "512 for prompts alone and fewer next to running streams; 2048 with objectives",
    )
    max_sequences: Option[int] = Option("COUNT", parse_count, "Sequences in one step.", "64")
    step_limiter: Field[str] = Field()
    step_cost: Field[str] = Field()

    @property
    def objectives(self) -> LatencyObjectives:
        """The latency objectives of these settings."""
        return LatencyObjectives(self.ttft, self.itl)


@dataclass(frozen=True, eq=False, repr=False)
class ImageSettings(Group):
    """Settings of images in prompts: the encoder and its format, sizes and memory, and the hosts from which images are
    fetched."""

    images: Option[str] = Option(
        "WORD",
        one_of("on", "off"),
        "Read images in prompts.",
        "on where the model has an encoder",
    )
    mmproj: Option[str | None] = Option(
        "FILE",
        str,
        "Read the image encoder from this GGUF file.",
        "the file next to the model's GGUF file",
    )
    image_tokens: Option[int] = Option("COUNT", parse_count, "Most image rows of an image whose size decides.", "4096")
    encoder_weights: Option[str] = Option(
        "FORMAT",
        one_of(*ENCODER_WEIGHTS),
        "Format of the image encoder's matrices: usual, int8, int16, bf16, f32. int16 is two codes of int8 a weight.",
        "usual: the format of the language model's weights, or int8 where its file stores codes",
    )
    image_urls: NamesOption = NamesOption(
        "HOSTS",
        parse_image_hosts,
        "Hosts that images may be fetched from over https, by name, such as images.example.org; HOST:PORT, "
        "http://HOST, * for all public ones; a private address must be listed by its digits.",
        "none: image URLs are refused",
    )
    image_cache: Option[int] = Option("BYTES", parse_bytes, "Most bytes of encoded images that are kept.", "256MiB")


@dataclass(frozen=True, eq=False, repr=False)
class CpuSettings(Group):
    """Settings of the CPU backend. cpus: the hardware threads to which the engine's threads are bound, as text."""

    threads: Option[int] = Option("COUNT", parse_count, "CPU threads.", "the cores this process may use")
    cpu_level: Option[str] = Option(
        "LEVEL",
        one_of("generic", "avx2", "avxvnni", "avx512", "amx", "neon", "dotprod", "i8mm"),
        "Instruction-set level of the kernels: generic, avx2, avxvnni, avx512, amx; on aarch64 generic, neon, dotprod, "
        "i8mm.",
        "the best that this CPU has",
    )
    cpus: Field[str] = Field()


@dataclass(frozen=True, eq=False, repr=False)
class RankSettings(Group):
    """Settings of several processes that compute one model."""

    tensor_parallel: Option[int] = Option(
        "COUNT",
        parse_count,
        "Processes that each hold a share of every layer's rows and heads, and compute each step together.",
        "1",
    )
    pipeline_parallel: Option[int] = Option(
        "COUNT",
        parse_count,
        "Processes that each hold a run of layers: for a model that does not fit into the memory of one process.",
        "1",
    )
    rank_addresses: ListOption[tuple[str, int]] = ListOption(
        "HOST:PORT",
        each(parse_address),
        "Where the other ranks or stages listen (`twostroke rank`), in their order, separated by commas.",
        "none: they are processes of this machine",
    )
    rank_timeout: Option[float] = Option(
        "TIME",
        parse_seconds,
        "Longest wait of one rank or stage for another within a step; after it the engine ends and names the one that "
        "hangs.",
        "60s",
    )


@dataclass(frozen=True, eq=False, repr=False)
class DeviceSettings(Group):
    """Settings of the device: where the model runs, and whether a GPU begins steps early."""

    device: Option[str] = Option(
        "DEVICE",
        parse_device,
        "Where the model runs: cpu, cuda or cuda:N (an NVIDIA GPU of compute capability 8.0 or higher), or auto: cuda "
        "where a device can run this model, else the CPU.",
        "cpu",
    )
    early_steps: Option[str] = Option(
        "WHEN",
        one_of("auto", "on", "off"),
        "Begin the next decode step on a GPU before the host has looked at the tokens of this one, so that the GPU "
        "does not wait for the host. The answers stay the same, bit for bit.",
        "auto: on for a GPU, off for the CPU, models that keep states, and where a model or its heads guess",
    )


@dataclass(frozen=True, eq=False, repr=False)
class SpeculateSettings(Group):
    """Settings of how tokens are guessed."""

    speculate: Option[str] = Option(
        "WAY",
        parse_speculate,
        "Guess the next tokens and verify several in a step, where that is faster; the answers stay the same, bit for "
        "bit. ngram: from the request's own text. suffix: from finished answers under the same salt, too. auto: "
        "suffix. draft:MODEL: by a small model of the same vocabulary (draft:spark-draft for spark). medusa:PATH: by "
        "heads on the model's hidden state, in a folder with medusa_lm_head.safetensors (medusa alone: spark's). "
        "eagle:PATH: by a layer of EAGLE 1, 2 or 3 over hidden states (eagle alone: spark's). mtp: by the layer of the "
        "model's own checkpoint that predicts a further token (DeepSeek-V3, GLM-4.5, Qwen3-Next and those like them).",
        "auto; off for models with states",
    )

    @property
    def way(self) -> str:
        """The way to guess, without the model or the folder that it names."""
        return self.speculate.partition(":")[0]

    @property
    def source(self) -> str:
        """The model or the folder that `speculate` names; empty where it names none."""
        return self.speculate.partition(":")[2]


@dataclass(frozen=True, eq=False, repr=False)
class DiskSettings(Group):
    """Settings of what an engine writes to the disk, and where."""

    cache: Option[str] = Option(
        "FOLDER",
        parse_text,
        "Folder for packed weights; 'off' keeps none.",
        "$XDG_CACHE_HOME/twostroke",
    )
    cache_limit: Option[int | None] = Option(
        "SIZE",
        parse_bytes,
        "Most bytes of packed weights in that folder, such as 100GB. The files used longest ago are removed first, and "
        "never one in use.",
        "half of what the disk would have free without them",
    )
    kv_disk: Option[int] = Option(
        "SIZE",
        parse_disk,
        "Keep computed prompts on disk, in the folder kv of the cache folder, and read them after a restart where that "
        "is sooner than computing them. SIZE is the most bytes of them, such as 10GB, auto (10GB, at most 5% of what "
        "is free), or off. What clients wrote can be derived from these files: they are readable by this user alone.",
        "off",
    )
    trace: Option[str | None] = Option(
        "FILE",
        parse_text,
        "File for the record of every step, as JSON lines, whole at the end.",
        "none",
    )


@dataclass(frozen=True, eq=False, repr=False)
class MemorySettings(Group):
    """The bytes that an engine needs in addition to its KV cache: weights, buffers, tables, adapters and the process
    itself."""

    weight_bytes: Field[int] = Field()
    buffer_bytes: Field[int] = Field()
    table_bytes: Field[int] = Field()
    adapter_bytes: Field[int] = Field()
    process_bytes: Field[int] = Field()

    @property
    def total(self) -> int:
        """The sum of all fields. adapter_bytes has a value only where the engine takes adapters."""
        adapters = self.adapter_bytes if self.has(MemorySettings.adapter_bytes) else 0
        return self.weight_bytes + self.buffer_bytes + self.table_bytes + self.process_bytes + adapters


@dataclass(frozen=True, eq=False, repr=False)
class AdapterSettings(Group):
    """LoRA adapters: those that are given, and those that clients may load later."""

    adapter: ListOption[tuple[str, str]] = ListOption(
        "NAME=FOLDER",
        each(parse_adapter),
        "A LoRA adapter as PEFT saves it, asked for as a model of this name; may be given several times.",
        "none",
    )
    adapter_folder: Option[str | None] = Option(
        "FOLDER",
        parse_text,
        "Clients may load adapters that lie in this folder, and unload any: POST /v1/load_lora_adapter.",
        "none: they may not",
    )
    max_adapters: Option[int] = Option(
        "COUNT",
        parse_count,
        "Most adapters at a time.",
        "those given; 8 more with a folder",
    )
    adapter_rank: Option[int] = Option("COUNT", parse_count, "Largest rank of adapters that are loaded later.", "16")


@dataclass(frozen=True, eq=False, repr=False)
class ClusterSettings(Group):
    """The setting by which several processes of a cluster trust each other: their common secret."""

    cluster_secret: Option[str | None] = Option(
        "TEXT",
        parse_text,
        "Secret that a front and its replicas prove to each other; needed where an address is not loopback.",
        "none (loopback only)",
        secret=True,
    )
