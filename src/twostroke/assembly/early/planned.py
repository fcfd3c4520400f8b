"""Plans the memory of a model that is one of several on a machine, before its process is started.

Such a model's KV cache does not get the rest of the memory, as it does where a model is alone. It gets room for one
sequence of the longest context, or for eight chats of 4,096 tokens, whichever is more.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from twostroke.assembly.caches import longest_sequence, own_pools
from twostroke.assembly.find import Found, find_model
from twostroke.assembly.folders import texts_of
from twostroke.assembly.grammars import GrammarsAhead, grammars_of
from twostroke.assembly.guessing.guesses import ways_of
from twostroke.assembly.settings.config import refuse_later_adapters
from twostroke.assembly.settings.engine_settings import CacheSettings
from twostroke.assembly.settings.env import asked_by_environment
from twostroke.assembly.settings.resolver import collect
from twostroke.assembly.task import Texts, build_texts
from twostroke.engine.limits import EngineLimits
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.talk.ends import turn_end_ids
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.generation import GenerationDefaults, read_generation_defaults

if TYPE_CHECKING:
    from twostroke.text.templates.chat_template import ChatTemplate

USUAL_TOKENS = 8 * 4096


class PlannedProcess(Struct, frozen=True):
    """A model whose process may be started. found: the model with all of its settings. options: the options with which
    the process is started; they give the same settings there. need_bytes: the memory of the process in bytes."""

    found: Found
    options: Mapping[str, Any]
    need_bytes: int


class ModelTexts(Struct, frozen=True):
    """The objects that read and write texts for a model whose weights are in another process. closing: closes them."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    generation: GenerationDefaults
    grammars: GrammarCompiler
    limits: EngineLimits
    made: Texts
    closing: ExitStack


def plan_model(model: str, options: Mapping[str, Any]) -> PlannedProcess:
    """Resolves all settings of the engine, including memory. Raises TwostrokeError, for example where the model does
    not fit at all."""
    refuse_later_adapters(collect(options, asked_by_environment()))
    found = find_model(model, options)
    settings, plan = found.resolver.resolved(), found.kv_plan
    if found.resolver.asked_value(CacheSettings.kv_memory) is None:
        wanted = max(settings.steps.context, USUAL_TOKENS)
        if plan.tokens > wanted:
            share = -(-plan.kv_bytes * wanted // plan.tokens)
            found = find_model(model, {**options, "kv_memory": str(share)})
            settings = found.resolver.resolved()
    need = settings.memory.total + settings.cache.kv_memory
    return PlannedProcess(found, {**options, "kv_memory": str(settings.cache.kv_memory)}, need)


def read_texts(found: Found) -> ModelTexts:
    """Returns the objects that a front, the process that serves HTTP before the engines, builds from a model's folder.
    Raises TwostrokeError."""
    resolved, spec, folder = found.resolver.resolved(), found.spec, found.folder.path
    tokenizer, template = texts_of(found.resolver, folder)
    generation, closing = read_generation_defaults(folder), ExitStack()
    ends = frozenset(generation.eos_token_ids) | frozenset(spec.eos_token_ids) | tokenizer.end_token_ids
    ends |= turn_end_ids(template, tokenizer)
    grammars, ahead = grammars_of(tokenizer, spec.vocab_size, ends, closing, GrammarsAhead)
    ahead.start()
    context = resolved.steps.context
    limits = EngineLimits(
        context,
        spec.vocab_size,
        longest_sequence(own_pools(spec, found.kv_plan), context),
        ends,
        resolved.steps.objectives,
        ways_of(resolved, spec),
        task=spec.task,
    )
    made = build_texts(spec, resolved.task.pooling, found.files, tokenizer, folder)
    return ModelTexts(tokenizer, template, generation, grammars, limits, made, closing)
