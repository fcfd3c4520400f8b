"""Finds how a model converses, without its weights: reads its template, its vocabulary and its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from twostroke.assembly.find import Found, find_model
from twostroke.assembly.folders import texts_of
from twostroke.assembly.settings.server_settings import TalkSettings
from twostroke.text.talk.ask import asked_format, lines_of
from twostroke.text.talk.ends import turn_end_ids
from twostroke.text.talk.learn.find import find_format
from twostroke.text.talk.switches import Switches, Wish
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.sampling.open_values import filled
from twostroke.weights.generation import read_generation_defaults

WISHES = {"off": Wish(effort="none"), "on": Wish(on=True), "low": Wish(effort="low"), "high": Wish(effort="high")}
NO_TEMPLATE = "none: the model has no chat template"
ITSELF, FOR_IT = "the template shows them", "Twostroke writes them: the template leaves them out"
LIBRARY = "the model's files name none"


class Talk(Struct, frozen=True):
    """The way in which a model converses, as `doctor` and `config --talk` print it.

    format: how the model writes thoughts and tool calls, each part by its name. takes: for each part of a conversation
    whether the template shows it. switches: the template's variables for each wish about thinking. ends: the tokens
    that end an answer. sampling: the publisher's sampling values.
    """

    format: Mapping[str, str]
    takes: Mapping[str, str]
    switches: Mapping[str, Mapping[str, Any]]
    ends: tuple[str, ...]
    sampling: Mapping[str, float | int]


def talk_of(model: str, options: Mapping[str, Any]) -> Talk:
    """Returns how the model would converse when it is served. Raises TwostrokeError."""
    found = find_model(model, options)
    folder = found.folder.path
    tokenizer, template = texts_of(found.resolver, folder)
    sampling, ends = dict(read_generation_defaults(folder).sampling), _ends(found, tokenizer, template)
    if template is None:
        return Talk({"format": NO_TEMPLATE}, {}, {}, ends, sampling)
    asked = [found.resolver.asked_value(form) for form in (TalkSettings.tool_format, TalkSettings.reasoning_format)]
    form = asked_format(find_format(template, tokenizer), *asked)
    lines = {name: text for name, text in lines_of(form) if name != "ends"}
    switches = Switches(template, form)
    put = {name: switches.put(wish) for name, wish in WISHES.items()} if form.thinks else {}
    words = {
        name: {**each.variables, **({"system": each.system} if each.system else {})}
        for name, each in put.items()
        if each is not None and (each.variables or each.system)
    }
    able = template.abilities
    tried = {"offered tools": able.offers, "earlier calls": able.calls, "results": able.results}
    return Talk(lines, {name: ITSELF if yes else FOR_IT for name, yes in tried.items()}, words, ends, sampling)


def _ends(found: Found, tokenizer: Tokenizer, template: Any) -> tuple[str, ...]:
    """Returns the texts of the tokens that end an answer. The engine gathers them in the same way."""
    generation = read_generation_defaults(found.folder.path)
    ids = {*generation.eos_token_ids, *found.spec.eos_token_ids, *tokenizer.end_token_ids}
    return tuple(tokenizer.token_text(each) for each in sorted(ids | turn_end_ids(template, tokenizer)))


def lines(talk: Talk) -> list[tuple[str, str]]:
    """Returns the talk as pairs of a name and a text, for output."""
    made = [*talk.format.items(), ("ends", " ".join(talk.ends) or "none")]
    for wish, variables in talk.switches.items():
        values = ", ".join(f"{name} = {value!r}" for name, value in variables.items())
        made.append((f"thinking {wish}", values))
    if "thought" in talk.format and talk.format["thought"] != "none" and not talk.switches:
        made.append(("thinking", "the template has no switch"))
    made += talk.takes.items()
    values = ", ".join(f"{name} {value}" for name, value in talk.sampling.items()) or LIBRARY
    added = {name: value for name, value in filled({}, talk.sampling).items() if name not in talk.sampling}
    ours = "".join(f"; {name} {value} when a request sets no limit" for name, value in added.items())
    return [*made, ("sampling", values + ours)]
