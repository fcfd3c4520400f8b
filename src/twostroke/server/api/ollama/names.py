"""Names of models as Ollama's clients write them: without regard to case, and `:latest` is the same as no tag."""

from __future__ import annotations

from twostroke.server.api.model_list import LATEST, plain_name
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.serving import Serving


def shown_name(name: str) -> str:
    """Returns the name as lists of models show it: always with a tag."""
    return name if ":" in name.rpartition("/")[2] else name + LATEST


def served_name(asked: str | None, serving: Serving) -> str:
    """Returns the served model or adapter that a client means. Raises HttpProblem (400, 404) in the words of Ollama."""
    if not asked:
        raise HttpProblem(Problem(400, "model is required", param="model"))
    wanted = plain_name(asked)
    for name in (*serving.names, *serving.adapters.names()):
        if plain_name(name) == wanted:
            return name
    raise HttpProblem(not_here(asked))


def not_here(asked: str) -> Problem:
    """Returns a problem with status 404, in the words that Ollama's clients look for."""
    message = f"model {asked[:200]!r} not found, try pulling it first".replace("'", '"')
    return Problem(404, message, param="model", code="model_not_found")
