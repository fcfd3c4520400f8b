"""Configuration: asked, resolved, frozen. Every resolved value carries its reason."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from twostroke.assembly.settings.env import Machine
from twostroke.assembly.settings.option import Option
from twostroke.assembly.settings.options import BY_NAME
from twostroke.cost.memory import KVPlan, MemoryNeeds, plan_kv
from twostroke.engine.scheduler.limits.gap_limiter import GapRule
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import usual_kv_format, usual_weights
from twostroke.types.errors import ConfigError
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import KVKind
from twostroke.types.speculate import NO_WAYS

QUEUED_REQUESTS, QUEUED_POOLS, DRAIN_S = 1024, 16, 30.0
BODY_MEMORY_BYTES = 256 * 1024 * 1024
IMAGE_CACHE = 256 << 20
USUAL_SEQUENCES = 64
"""Sequences in one step where nothing else is asked for."""
IMAGE_TOKENS = 4096
MAX_DEFAULT_CONTEXT = 32_768
STEP_TOKENS, OBJECTIVE_STEP_TOKENS = 512, 2048
GAP_LIMITER, ITL_LIMITER, NO_LIMITER = "GapLimiter", "ItlLimiter", "none"


class Asked(Struct, frozen=True):
    """One value that was asked for, and where."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One resolved value and the reason for it."""

    name: str
    value: Any
    reason: str


class Resolved(Struct, frozen=True):
    """All settings, frozen. Typed access below; `settings` is what `twostroke config` prints."""

    settings: tuple[Setting, ...]

    def __getitem__(self, name: str) -> Any:
        return next(setting.value for setting in self.settings if setting.name == name)

    def reason_of(self, name: str) -> str:
        """Why a setting has its value."""
        return next(setting.reason for setting in self.settings if setting.name == name)


def collect(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Asked]:
    """Options given by a caller (text or ready values; None means not given) over the environment's.

    Raises ConfigError for an unknown name, with the nearest known one, or an unreadable value.
    """
    asked: dict[str, Asked] = {}
    for name, text in environment.items():
        if name in BY_NAME:
            source = f"the variable TWOSTROKE_{name.upper()}"
            asked[name] = Asked(_read(BY_NAME[name], text, source), source)
    for name, value in options.items():
        if value is None or value == ():
            continue
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, BY_NAME, 1)
            hint = f"Did you mean {near[0]!r}?" if near else "Options: " + ", ".join(BY_NAME) + "."
            raise ConfigError(f"There is no option {name!r}.", fix=hint)
        option = BY_NAME[name]
        asked[name] = Asked(_read(option, value, option.flag), option.flag)
    return asked


def _read(option: Option, value: Any, source: str) -> Any:
    """An option that may be given several times takes a mapping, a list, or one text with commas between."""
    if not option.many:
        return option.read(str(value), source)
    if isinstance(value, Mapping):
        value = [f"{key}={each}" for key, each in value.items()]
    return tuple(option.read(str(each), source) for each in (value.split(",") if isinstance(value, str) else value))


class Resolver:
    """Takes each asked value or a default, and writes down why."""

    def __init__(self, asked: Mapping[str, Asked]) -> None:
        self._asked = asked
        self._settings: list[Setting] = []

    def pick(self, name: str, default: Any, reason: str) -> Any:
        """The asked value of `name`, or the default with its reason."""
        found = self._asked.get(name)
        return self.put(name, default if found is None else found.value, reason if found is None else found.source)

    def put(self, name: str, value: Any, reason: str) -> Any:
        """Record a value that cannot be asked for."""
        self._settings.append(Setting(name, value, reason))
        return value

    def asked_value(self, name: str) -> Any:
        """The asked value, or None."""
        return self._asked[name].value if name in self._asked else None

    def source_of(self, name: str) -> str:
        """Where a value was asked for; "" where it was not."""
        return self._asked[name].source if name in self._asked else ""

    def forget(self, name: str) -> None:
        """Nothing was asked for by this name."""
        self._asked = {own: asked for own, asked in self._asked.items() if own != name}

    def ask_instead(self, name: str, value: Any, source: str) -> None:
        """Another value counts as asked for. source: what was asked for, and why it is another."""
        self._asked = {**self._asked, name: Asked(value, source)}

    def resolved(self) -> Resolved:
        """Freeze."""
        return Resolved(tuple(self._settings))


class ModelFacts(Struct, frozen=True):
    """What is known of a model before its weights are read. source: folder or hub id, for messages.

    text_tokens: the longest text that its files name, None where they name none.
    """

    source: str
    revision: str | None
    spec: Model
    text_tokens: int | None = None


def resolve_engine(resolver: Resolver, facts: ModelFacts, machine: Machine, best_level: str) -> None:
    """Everything but memory."""
    spec = facts.spec
    resolver.put("model", facts.source, "asked for")
    resolver.put("revision", facts.revision, "of the folder or hub snapshot")
    weights = resolver.pick("weights", *_usual_weights(spec))
    resolver.pick("kv_format", *_usual_kv(resolver, spec, weights, best_level))
    context = resolver.pick("context", *_usual_context(facts))
    if context > spec.longest_context:
        raise ConfigError(
            f"--context {context} is more than the model's {spec.longest_context} positions.",
            fix=f"Ask for at most {spec.longest_context}.",
        )
    promised = resolve_objectives(resolver).any
    step_tokens = resolver.pick("max_step_tokens", *_usual_step(spec, context, promised))
    if spec.whole_prompts and step_tokens < context:
        raise ConfigError(
            f"--max-step-tokens {step_tokens} is less than the context of {context}.",
            why="In this model positions see later ones, so a text is computed in one step.",
            fix=f"Give --context {step_tokens} too, or raise the first.",
        )
    resolver.put("step_limiter", *_step_limiter(promised, resolver.asked_value("max_step_tokens") is not None))
    sequences = resolver.pick("max_sequences", USUAL_SEQUENCES, "default")
    if sequences > step_tokens:
        raise ConfigError(
            f"--max-sequences {sequences} is more than --max-step-tokens {step_tokens}.",
            why="Each decoding sequence takes one token of a step.",
            fix="Lower the first or raise the second.",
        )
    _resolve_guesses(resolver, spec)
    threads = resolver.pick("threads", machine.cores, machine.placing.reason)
    resolver.put("cpus", *machine.placing.kept_on(threads))
    resolver.pick("cpu_level", best_level, "best level of this CPU")
    resolver.pick("cache", str(machine.cache_folder), "default cache folder")
    resolver.pick("cache_limit", None, "half of what the disk would have free without the cache")
    resolver.pick("trace", None, "none asked for")


def _resolve_guesses(resolver: Resolver, spec: Model) -> None:
    """Models that generate nothing are not guessed."""
    if spec.task is Task.GENERATE:
        resolver.pick("speculate", *_usual_guesses(spec))
        return
    asked, why = resolver.asked_value("speculate"), f"A model for the task {spec.task} makes no tokens"
    if asked not in (None, *NO_WAYS):
        raise ConfigError(f"--speculate {asked} is not possible with this model.", why=f"{why}.", fix="Leave it out.")
    resolver.put("speculate", "off", why[0].lower() + why[1:])


def _usual_guesses(spec: Model) -> tuple[str, str]:
    """Guesses that were wrong cost a model with states more: its states go back, and rows are computed again."""
    if spec.state_bytes():
        return "off", "default for a model that keeps states"
    return "auto", "default: guesses are verified where that is faster"


def _usual_context(facts: ModelFacts) -> tuple[int, str]:
    longest = facts.spec.max_positions
    if facts.text_tokens is not None and facts.text_tokens < min(longest, MAX_DEFAULT_CONTEXT):
        return facts.text_tokens, "max_seq_length of sentence_bert_config.json"
    return (longest, "the model's own") if longest <= MAX_DEFAULT_CONTEXT else (MAX_DEFAULT_CONTEXT, "default limit")


def _usual_step(spec: Model, context: int, promised: bool) -> tuple[int, str]:
    usual = OBJECTIVE_STEP_TOKENS if promised else STEP_TOKENS
    if spec.whole_prompts and context > usual:
        return context, "a text is computed in one step"
    return usual, "only a cap: steps are sized by the objectives" if promised else "default"


def _usual_weights(spec: Model) -> tuple[str, str]:
    stored = any(weight.stored for weight in spec.program.weights)
    return usual_weights(stored, spec.dtype, spec.task is Task.GENERATE)


def _usual_kv(resolver: Resolver, spec: Model, weights: str, best_level: str) -> tuple[str, str]:
    where = ""
    if spec.has_latents:
        where = " and a cache of latents"
    elif (
        resolver.asked_value("device") in (None, "cpu")
        and (resolver.asked_value("cpu_level") or best_level) == "generic"
    ):
        where = " at the level generic"
    return usual_kv_format(weights, bool(where)), f"default with {weights} weights{where}"


def _step_limiter(promised: bool, step_asked: bool) -> tuple[str, str]:
    """Which limiter sizes prompts next to running streams, and why."""
    if promised:
        return ITL_LIMITER, "prompts beside streams take what --itl leaves of each step, by predicted step times"
    if step_asked:
        return NO_LIMITER, "--max-step-tokens was asked for: each step is filled to it, however long its streams wait"
    return GAP_LIMITER, f"{GapRule()}, by measured step times; prompts alone fill the step"


def step_rule(resolved: Resolved) -> str:
    """What sizes prompts next to streams, in words; empty where max_step_tokens alone does."""
    promised = f"ItlLimiter (--itl {1e3 * resolved['itl']:g}ms)" if resolved["itl"] is not None else ""
    return {GAP_LIMITER: f"GapLimiter ({GapRule()})", ITL_LIMITER: promised}.get(resolved["step_limiter"], "")


def resolve_objectives(resolver: Resolver) -> LatencyObjectives:
    """What is promised; none by default, because no figure would be true of every model and machine."""
    ttft_s = resolver.pick("ttft", None, "no objective: in order of arrival, no request is refused")
    itl_s = resolver.pick("itl", None, "no objective: see step_limiter")
    return LatencyObjectives(ttft_s, itl_s)


def resolve_images(resolver: Resolver) -> None:
    """What images may take, and where they may be fetched from."""
    resolver.pick("image_cache", IMAGE_CACHE, "default")
    resolver.pick("image_tokens", IMAGE_TOKENS, "default")
    hosts = resolver.asked_value("image_urls")
    why = resolver.source_of("image_urls") or "none asked for: images are not fetched"
    resolver.put("image_urls", tuple(dict.fromkeys(one for several in hosts or () for one in several)), why)


def objectives_of(resolved: Resolved) -> LatencyObjectives:
    """The resolved promises."""
    return LatencyObjectives(resolved["ttft"], resolved["itl"])


def resolve_memory(resolver: Resolver, needs: MemoryNeeds, machine: Machine) -> KVPlan:
    """The KV pool; raises OutOfMemory with the arithmetic."""
    plan = plan_kv(needs, machine.available_bytes, resolver.asked_value("kv_memory"), machine.memory_source)
    resolver.put("weight_bytes", needs.weight_bytes, "packed size of the chosen format")
    resolver.put("buffer_bytes", needs.buffer_bytes, "activations of one step and its logits")
    resolver.put("table_bytes", needs.table_bytes, "rotations and page tables of the longest context")
    if needs.adapter_bytes:
        resolver.put("adapter_bytes", needs.adapter_bytes, "places for adapters")
    resolver.put("process_bytes", needs.process_bytes, "interpreter, tokenizer, requests: what stays after any load")
    resolver.put("kv_memory", plan.kv_bytes, plan.reason)
    resolver.put("kv_tokens", plan.tokens, needs.caches.words())
    return plan


def resolve_server(resolver: Resolver, default_name: str) -> None:
    """Where to listen and under which names; a non-loopback address needs a key."""
    host = _resolve_place(resolver)
    for name in ("allow_host", "allow_origin"):
        asked = resolver.asked_value(name)
        each = tuple(dict.fromkeys(one for several in asked or () for one in several))
        resolver.put(name, each, "none asked for" if asked is None else resolver.source_of(name))
    resolver.pick("root_path", "", "none asked for")
    names = resolver.asked_value("served_name") or (default_name,)
    why = resolver.source_of("served_name") or "the model's name"
    resolver.put("served_name", names[0], why)
    resolver.put("other_names", names[1:], why)
    resolver.pick("chat_template", None, "the model's own")
    for name in ("tool_format", "reasoning_format"):
        resolver.pick(name, None, "found by the template and the vocabulary")
    resolver.pick("log", "text", "default")
    resolver.pick("otlp", None, "none asked for")
    resolver.pick("stored_work", None, "none asked for")
    resolver.pick("stored_bytes", 1_000_000_000, "default")
    resolver.pick("stored_age", 30 * 86400.0, "default")
    resolver.pick("client_lines", "drop", "default: a client's changing metadata is no text for a model")
    resolver.pick("strict_fields", False, "default: fields that are not known are named in a header")
    key = resolver.pick("api_key", None, "none asked for")
    if key is None and host not in ("127.0.0.1", "::1", "localhost"):
        raise ConfigError(
            f"Listening on {host} without an API key is refused.",
            why="Any client that reaches that address could use the server.",
            fix="Give --api-key, or listen on 127.0.0.1.",
        )


def _resolve_place(resolver: Resolver) -> str:
    """A port or a socket of the file system; the former's address. Raises ConfigError where both are asked for."""
    host = resolver.asked_value("host")
    if host is not None and "/" in host:
        resolver.ask_instead("uds", host.removeprefix("unix:"), f"{resolver.source_of('host')}, which is a path")
        resolver.forget("host")
    uds = resolver.pick("uds", None, "none asked for")
    resolver.pick("uds_mode", "600", "the server's own user alone")
    if uds is not None and (both := next((name for name in ("host", "port") if resolver.source_of(name)), None)):
        raise ConfigError(
            f"{resolver.source_of('uds')} and {resolver.source_of(both)} cannot be together.",
            why="A server listens on one socket: a file's or a port's.",
            fix="Leave one of them out.",
        )
    resolver.pick("port", 8000, "default")
    return str(resolver.pick("host", "127.0.0.1", "loopback by default"))


def refuse_later_adapters(asked: Mapping[str, Asked]) -> None:
    """Raises ConfigError where clients are to load adapters behind a front."""
    given = next((asked[name] for name in ("adapter_folder", "max_adapters", "adapter_rank") if name in asked), None)
    if given is not None:
        raise ConfigError(
            f"Replicas load no adapters later, and {given.source} asks for that.",
            why="Each replica would have to load the same one at the same time.",
            fix="Name all adapters with --adapter, or serve one model from one process.",
        )


def place_of(asked: Mapping[str, Asked]) -> Resolved:
    """Where to listen, before any model is looked at. Raises ConfigError."""
    resolver = Resolver(dict(asked))
    resolve_server(resolver, "")
    return resolver.resolved()


def resolve_overload(resolver: Resolver, pool_tokens: int) -> None:
    """Bounds on what waits, on each key and on time. pool_tokens: what the KV cache holds."""
    resolver.pick("queued_requests", QUEUED_REQUESTS, "default")
    resolver.pick("queued_tokens", QUEUED_POOLS * pool_tokens, f"{QUEUED_POOLS} times what the KV cache holds")
    resolver.pick("key_requests", None, "no bound asked for")
    resolver.pick("key_tokens", None, "no bound asked for")
    resolver.pick("body_memory", BODY_MEMORY_BYTES, "default")
    resolver.pick("deadline", None, "no end asked for")
    resolver.pick("drain", DRAIN_S, "default")


def kv_kind(word: str) -> KVKind:
    """ "bf16" -> KVKind.BF16."""
    return KVKind[word.upper()]


def room_sentence(resolved: Resolved) -> str:
    """ "room for 41,000 tokens: 20 sequences of 2,048"."""
    tokens, context = resolved["kv_tokens"], resolved["context"]
    length = min(context, 2048)
    keys = "" if resolved["key_factors"] == "none" else ", calibrated keys"
    return (
        f"KV cache {resolved['kv_memory'] / 1e6:,.0f} MB ({resolved['kv_format']}{keys}): "
        f"room for {tokens:,} tokens: {tokens // length:,} sequences of {length:,}"
    )
