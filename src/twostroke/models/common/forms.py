"""The tasks for which a checkpoint can be served: its head makes logits, embeddings or scores.

    XForCausalLM                  logits, or what `--task` asks for
    XModel                        embeddings: the checkpoint has no head
    XForSequenceClassification    scores by a classifier, `score`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec import Struct

from twostroke.ops.passes.heads import chosen, classes, features
from twostroke.ops.program.model import CommonFacts
from twostroke.ops.program.program import Program
from twostroke.types.errors import UnsupportedModel
from twostroke.types.pooling import Task
from twostroke.types.spec.fields import Fields

CAUSAL = "ForCausalLM"
"""The ending of the names of architectures that make logits."""

BARE, CLASSIFIER = "Model", "ForSequenceClassification"
MAX_LABELS = 1 << 16
USUAL_PREFIX = "model."


def unchanged(program: Program) -> Program:
    """Returns the program as the model file traced it."""
    return program


class Form(Struct, frozen=True):
    """What a checkpoint is served for, and how its program is changed for that: LOGITS, EMBEDDINGS or the scores of a
    classifier. task: the task that the result's rows serve. change: makes the program from that of a model file."""

    task: Task = Task.GENERATE
    change: Callable[[Program], Program] = unchanged


LOGITS = Form()
EMBEDDINGS = Form(Task.EMBED, features)


def tokens_form(token_ids: Sequence[int]) -> Form:
    """Returns the form of a program that scores pairs of query and document: the scores are the logits of these
    tokens."""
    return Form(Task.RERANK, lambda program: chosen(program, token_ids))


def num_labels(fields: Fields) -> int:
    """Reads how many labels a classifier has. id2label decides it, else num_labels, else the default of transformers,
    2."""
    named = fields.group("id2label")
    if named is not None:
        return len(named.values)
    return fields.integer("num_labels", 1, MAX_LABELS, default=2)


def form_named(architecture: str, fields: Fields) -> Form:
    """Returns the form (logits, embeddings or scores) that follows from the ending of an architecture's name."""
    if architecture.endswith(CLASSIFIER):
        count = num_labels(fields)
        return Form(Task.RERANK, lambda program: classes(program, "score", count))
    return EMBEDDINGS if architecture.endswith(BARE) else LOGITS


def formed(facts: CommonFacts, plain: Program, form: Form) -> tuple[CommonFacts, Program]:
    """Changes a program to a form: its result becomes logits, embeddings or scores. Returns the changed facts and
    program. The checkpoint may still have the tensors that only the old form reads. The names of its tensors may lack
    the usual prefix."""
    if form.change is unchanged:
        return facts, plain
    program = form.change(plain)
    left_out = _names(plain) - _names(program)
    ignored = (*facts.ignored, *sorted(left_out))
    return replace(facts, ignored=ignored, optional_prefix=facts.optional_prefix or USUAL_PREFIX), program


def causal_name(architecture: str) -> str:
    """Returns the name that ends in ForCausalLM of the same decoder. Qwen3Model and Qwen3ForSequenceClassification
    become Qwen3ForCausalLM."""
    for ending in (CLASSIFIER, BARE):
        if architecture.endswith(ending):
            return architecture.removesuffix(ending) + CAUSAL
    return architecture


def require_form(own: Form, asked: Form | None, architecture: str) -> Form:
    """Returns the form in which a model is served: `asked`, or `own`, which follows from its architecture. Raises
    UnsupportedModel where a checkpoint of embeddings or scores is asked to serve another task."""
    if asked is None or asked.task is own.task:
        return own
    if own.task is not Task.GENERATE:
        raise UnsupportedModel(
            f"A {architecture} cannot be served for the task {asked.task}.",
            why=f"Its checkpoint is made for the task {own.task}.",
            fix="Leave out --task.",
        )
    return asked


def _names(program: Program) -> set[str]:
    parts = [part for weight in program.weights for part in (*weight.parts, *weight.bias)]
    return {part.name for part in (*parts, *(part for vector in program.vectors for part in vector.parts))}
