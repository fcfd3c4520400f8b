"""Resolves the configuration from what was asked for, and freezes it. Every resolved value carries its reason."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from twostroke.assembly.settings.engine_settings import (
    AdapterSettings,
    CacheSettings,
    CpuSettings,
    DeviceSettings,
    DiskSettings,
    ImageSettings,
    MemorySettings,
    ModelSettings,
    SpeculateSettings,
    StepSettings,
)
from twostroke.assembly.settings.env import Machine
from twostroke.assembly.settings.resolver import Asked, Resolved, Resolver
from twostroke.assembly.settings.server_settings import (
    ListenSettings,
    LoadSettings,
    NameSettings,
    PageSettings,
    RequestSettings,
    StoredSettings,
    TalkSettings,
    TraceSettings,
)
from twostroke.cost.memory import PROCESS_BYTES, EncoderBytes, KVPlan, MemoryNeeds, plan_kv, require_room
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
"""The number of sequences in one step by default."""
IMAGE_TOKENS = 4096
MAX_DEFAULT_CONTEXT = 32_768
STEP_TOKENS, OBJECTIVE_STEP_TOKENS = 512, 2048
HELD = "the interpreter, the tokenizer and the requests, which stay after any load"
GAP_LIMITER, ITL_LIMITER, NO_LIMITER = "GapLimiter", "ItlLimiter", "none"


class ModelFacts(Struct, frozen=True):
    """The facts of a model that are known before its weights are read. source: its folder or hub id, for messages.

    text_tokens: the most tokens of a text, by the model's files; None where they give no limit.
    """

    source: str
    revision: str | None
    spec: Model
    text_tokens: int | None = None


def resolve_engine(resolver: Resolver, facts: ModelFacts, machine: Machine, best_level: str) -> None:
    """Resolves all settings of an engine except memory."""
    spec = facts.spec
    resolver.put(ModelSettings.model, facts.source, "asked for")
    resolver.put(ModelSettings.revision, facts.revision, "of the folder or hub snapshot")
    weights = resolver.pick(ModelSettings.weights, *_usual_weights(spec))
    resolver.pick(CacheSettings.kv_format, *_usual_kv(resolver, spec, weights, best_level))
    context = resolver.pick(StepSettings.context, *_usual_context(facts))
    if context > spec.longest_context:
        raise ConfigError(
            f"--context {context} is more than the model's {spec.longest_context} positions.",
            fix=f"Ask for at most {spec.longest_context}.",
        )
    promised = resolve_objectives(resolver).any
    step_tokens = resolver.pick(StepSettings.max_step_tokens, *_usual_step(spec, context, promised))
    if spec.whole_prompts and step_tokens < context:
        raise ConfigError(
            f"--max-step-tokens {step_tokens} is less than the context of {context}.",
            why="In this model positions see later ones, so a text is computed in one step.",
            fix=f"Give --context {step_tokens} too, or raise --max-step-tokens.",
        )
    step_asked = resolver.asked_value(StepSettings.max_step_tokens) is not None
    resolver.put(StepSettings.step_limiter, *_step_limiter(promised, step_asked))
    sequences = resolver.pick(StepSettings.max_sequences, USUAL_SEQUENCES, "default")
    if sequences > step_tokens:
        raise ConfigError(
            f"--max-sequences {sequences} is more than --max-step-tokens {step_tokens}.",
            why="Each decoding sequence takes one token of a step.",
            fix="Lower the first or raise the second.",
        )
    _resolve_guesses(resolver, spec)
    threads = resolver.pick(CpuSettings.threads, machine.cores, machine.placing.reason)
    resolver.put(CpuSettings.cpus, *machine.placing.kept_on(threads))
    resolver.pick(CpuSettings.cpu_level, best_level, "best level of this CPU")
    resolver.pick(DiskSettings.cache, str(machine.cache_folder), "default cache folder")
    resolver.pick(DiskSettings.cache_limit, None, "half of what the disk would have free without the cache")
    resolver.pick(DiskSettings.trace, None, "none asked for")


def _resolve_guesses(resolver: Resolver, spec: Model) -> None:
    """Settles `speculate`. It is off for models that generate no tokens. Raises ConfigError where guesses are asked for
    there."""
    if spec.task is Task.GENERATE:
        resolver.pick(SpeculateSettings.speculate, *_usual_guesses(spec))
        return
    asked, why = resolver.asked_value(SpeculateSettings.speculate), f"A model for the task {spec.task} makes no tokens"
    if asked not in (None, *NO_WAYS):
        raise ConfigError(f"--speculate {asked} is not possible with this model.", why=f"{why}.", fix="Leave it out.")
    resolver.put(SpeculateSettings.speculate, "off", why[0].lower() + why[1:])


def _usual_guesses(spec: Model) -> tuple[str, str]:
    """Returns the default of `speculate`, and the reason. It is `off` for a model with states, where a wrong guess
    costs more: the states are restored, and rows are computed again."""
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
        resolver.asked_value(DeviceSettings.device) in (None, "cpu")
        and (resolver.asked_value(CpuSettings.cpu_level) or best_level) == "generic"
    ):
        where = " at the level generic"
    elif spec.hard_keys:
        where = f" and {spec.hard_keys}"
    chosen = usual_kv_format(weights, bool(where))
    where = "" if chosen == weights else where
    return chosen, f"default with {weights} weights{where}"


def _step_limiter(promised: bool, step_asked: bool) -> tuple[str, str]:
    """Returns the name of the limiter that decides how many prompt tokens a step computes together with decoding
    sequences, and the reason."""
    if promised:
        return ITL_LIMITER, "prompts next to streams take what --itl leaves of each step, by predicted step times"
    if step_asked:
        return NO_LIMITER, "--max-step-tokens was asked for: each step is filled to it, however long its streams wait"
    return GAP_LIMITER, f"{GapRule()}, by measured step times; prompts alone fill the step"


def tell_whole_images(resolver: Resolver, rows: int, seconds: float, *, in_pieces: bool) -> None:
    """Adds a sentence to the reason of the setting `step_limiter` where a step with an image takes longer than the
    limiter's bound. The sentence names the time of such a step.

    rows: the most rows of an image, which see each other. seconds: the least predicted time of a step that has such
    rows and decodes a sequence. in_pieces: whether a step may compute a part of the rows.
    """
    settled = resolver.resolved()
    steps = settled.steps
    bound_s = {GAP_LIMITER: GapRule().least_s, ITL_LIMITER: steps.itl}.get(steps.step_limiter)
    if bound_s is not None and seconds > bound_s:
        reason = settled.reason_of(StepSettings.step_limiter)
        what = "go through the model in pieces; a step with one" if in_pieces else "share one step, which"
        words = f"{reason}; the {rows} rows of an image see each other and {what} takes {seconds:.2g} s"
        resolver.put(StepSettings.step_limiter, steps.step_limiter, words)


def step_rule(steps: StepSettings) -> str:
    """Returns in words the rule that limits the prompt tokens of a step that also decodes sequences; empty where only
    max_step_tokens limits them."""
    promised = f"ItlLimiter (--itl {1e3 * steps.itl:g}ms)" if steps.itl is not None else ""
    return {GAP_LIMITER: f"GapLimiter ({GapRule()})", ITL_LIMITER: promised}.get(steps.step_limiter, "")


def resolve_objectives(resolver: Resolver) -> LatencyObjectives:
    """Resolves the objectives. The default is none, because no figure would be right for every model and machine."""
    ttft_s = resolver.pick(StepSettings.ttft, None, "no objective: in order of arrival, no request is refused")
    itl_s = resolver.pick(StepSettings.itl, None, "no objective: see step_limiter")
    return LatencyObjectives(ttft_s, itl_s)


def resolve_images(resolver: Resolver) -> None:
    """Resolves the limits on images, and the hosts from which images may be fetched."""
    resolver.pick(ImageSettings.image_cache, IMAGE_CACHE, "default")
    resolver.pick(ImageSettings.image_tokens, IMAGE_TOKENS, "default")
    why = "the format of the language model's weights, or int8 where its file stores codes"
    resolver.pick(ImageSettings.encoder_weights, "usual", why)
    resolver.pick(ImageSettings.image_urls, (), "none asked for: images are not fetched")


def resolve_memory(resolver: Resolver, needs: MemoryNeeds, machine: Machine) -> KVPlan:
    """Plans the KV pool. Raises OutOfMemory with the arithmetic."""
    plan = plan_kv(needs, machine.available_bytes, resolver.asked_value(CacheSettings.kv_memory), machine.memory_source)
    resolver.put(MemorySettings.weight_bytes, needs.weight_bytes, "packed size of the chosen format")
    resolver.put(MemorySettings.buffer_bytes, needs.buffer_bytes, "activations of one step and its logits")
    resolver.put(MemorySettings.table_bytes, needs.table_bytes, "rotations and page tables of the longest context")
    if needs.adapter_bytes:
        resolver.put(MemorySettings.adapter_bytes, needs.adapter_bytes, "places for adapters")
    resolver.put(MemorySettings.process_bytes, needs.process_bytes, HELD)
    resolver.put(CacheSettings.kv_memory, plan.kv_bytes, plan.reason)
    resolver.put(CacheSettings.kv_tokens, plan.tokens, needs.caches.words())
    return plan


def resolve_encoder_memory(resolver: Resolver, needs: EncoderBytes, machine: Machine) -> None:
    """Resolves the memory of an encoder of images without its language model. Raises OutOfMemory with the arithmetic.
    """
    require_encoder_room(resolver, needs, machine)
    resolver.put(MemorySettings.weight_bytes, needs.weights, "packed size of the encoder in the chosen format")
    resolver.put(MemorySettings.buffer_bytes, needs.buffers, "activations, K and V of the largest tile")
    resolver.put(MemorySettings.process_bytes, PROCESS_BYTES, HELD)


def require_encoder_room(resolver: Resolver, needs: EncoderBytes, machine: Machine) -> None:
    """Raises OutOfMemory where this machine has no room for an encoder of images."""
    kept_bytes = resolver.resolved().images.image_cache
    require_room(needs, kept_bytes, machine.available_bytes, machine.memory_source)


def resolve_server(resolver: Resolver, default_name: str) -> None:
    """Resolves the address of the server and the model names that it answers to. An address that is not loopback needs
    an API key."""
    host = _resolve_place(resolver)
    for names in (ListenSettings.allow_host, ListenSettings.allow_origin):
        resolver.pick(names, (), "none asked for")
    resolver.pick(NameSettings.root_path, "", "none asked for")
    served, why = resolver.asked_value(NameSettings.served_name), "the model's name"
    first, *others = [default_name] if served is None else served.split(",")
    why = resolver.source_of(NameSettings.served_name) or why
    resolver.put(NameSettings.served_name, first, why)
    resolver.put(NameSettings.other_names, tuple(others), why)
    resolver.pick(TalkSettings.chat_template, None, "the model's own")
    for form in (TalkSettings.tool_format, TalkSettings.reasoning_format):
        resolver.pick(form, None, "found by the template and the vocabulary")
    resolver.pick(RequestSettings.log, "text", "default")
    resolver.pick(TraceSettings.otlp, None, "none asked for")
    resolver.pick(StoredSettings.stored_work, None, "none asked for")
    resolver.pick(StoredSettings.stored_bytes, 1_000_000_000, "default")
    resolver.pick(StoredSettings.stored_age, 30 * 86400.0, "default")
    resolver.pick(StoredSettings.chats, None, "none asked for")
    resolver.pick(StoredSettings.chats_bytes, 1_000_000_000, "default")
    resolver.pick(PageSettings.mcp, (), "none asked for")
    resolver.pick(RequestSettings.client_lines, "drop", "default: a client's changing metadata is no text for a model")
    resolver.pick(RequestSettings.strict_fields, False, "default: fields that are not known are named in a header")
    key = resolver.pick(ListenSettings.api_key, None, "none asked for")
    if key is None and host not in ("127.0.0.1", "::1", "localhost"):
        raise ConfigError(
            f"Listening on {host} without an API key is refused.",
            why="Any client that reaches that address could use the server.",
            fix="Give --api-key, or listen on 127.0.0.1.",
        )


def _resolve_place(resolver: Resolver) -> str:
    """Resolves a port or a socket of the file system, and returns the address for a port. Raises ConfigError where both
    are asked for."""
    host = resolver.asked_value(ListenSettings.host)
    if host is not None and "/" in host:
        source = f"{resolver.source_of(ListenSettings.host)}, which is a path"
        resolver.ask_instead(ListenSettings.uds, host.removeprefix("unix:"), source)
        resolver.forget(ListenSettings.host)
    uds = resolver.pick(ListenSettings.uds, None, "none asked for")
    resolver.pick(ListenSettings.uds_mode, "600", "the server's own user alone")
    both = resolver.first_asked(ListenSettings.host, ListenSettings.port)
    if uds is not None and both is not None:
        raise ConfigError(
            f"{resolver.source_of(ListenSettings.uds)} and {resolver.source_of(both)} cannot be together.",
            why="A server listens on one socket: a file's or a port's.",
            fix="Leave one of them out.",
        )
    resolver.pick(ListenSettings.port, 8000, "default")
    return resolver.pick(ListenSettings.host, "127.0.0.1", "loopback by default")


def refuse_later_adapters(asked: Mapping[str, Asked]) -> None:
    """Raises ConfigError where clients may load adapters later: replicas of a front cannot do that."""
    resolver, later = Resolver(asked), (AdapterSettings.adapter_folder, AdapterSettings.max_adapters)
    given = resolver.first_asked(*later, AdapterSettings.adapter_rank)
    if given is not None:
        raise ConfigError(
            f"Replicas load no adapters later, and {resolver.source_of(given)} asks for that.",
            why="Each replica would have to load the same one at the same time.",
            fix="Name all adapters with --adapter, or serve one model from one process.",
        )


def place_of(asked: Mapping[str, Asked]) -> Resolved:
    """Resolves where to listen, before any model is looked at. Raises ConfigError."""
    resolver = Resolver(dict(asked))
    resolve_server(resolver, "")
    return resolver.resolved()


def resolve_overload(resolver: Resolver, pool_tokens: int) -> None:
    """Resolves the limits on load: the requests and tokens that may wait, the requests and tokens of one API key, the
    bytes of bodies, and the deadline. pool_tokens: the tokens that the KV cache holds."""
    resolver.pick(LoadSettings.queued_requests, QUEUED_REQUESTS, "default")
    words = f"{QUEUED_POOLS} times what the KV cache holds"
    resolver.pick(LoadSettings.queued_tokens, QUEUED_POOLS * pool_tokens, words)
    resolver.pick(LoadSettings.key_requests, None, "no bound asked for")
    resolver.pick(LoadSettings.key_tokens, None, "no bound asked for")
    resolver.pick(LoadSettings.body_memory, BODY_MEMORY_BYTES, "default")
    resolver.pick(LoadSettings.deadline, None, "no end asked for")
    resolver.pick(LoadSettings.drain, DRAIN_S, "default")


def kv_kind(word: str) -> KVKind:
    """Returns the kind of K and V by its name: "bf16" -> KVKind.BF16."""
    return KVKind[word.upper()]


def room_sentence(resolved: Resolved) -> str:
    """Returns two sentences about the KV cache. The first tells what fits, in words such as "room for 41,000 tokens: 20
    sequences of 2,048". The second tells how much memory the cache takes."""
    tokens, context = resolved.cache.kv_tokens, resolved.steps.context
    length, size = min(context, 2048), f"{resolved.cache.kv_memory / 1e6:,.0f} MB"
    keys = "" if resolved.cache.key_factors == "none" else ", calibrated keys"
    grows = f"It takes memory as requests come: nearly none now, {size} at most."
    return (
        f"KV cache ({resolved.cache.kv_format}{keys}): room for {tokens:,} tokens: {tokens // length:,} sequences of "
        f"{length:,}. {grows if resolved.device.device == 'cpu' else f'It takes {size}.'}"
    )
