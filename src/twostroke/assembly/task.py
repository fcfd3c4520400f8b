"""Decides the task that a checkpoint is served for, and builds the objects that models for vectors (embeddings) or
scores need.

The first rule that applies decides. `--task` is the strongest. Then comes the architecture: an encoder or a model
without a head makes embeddings, a ForSequenceClassification makes scores. Then come the files of sentence-transformers.
Otherwise text is generated.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from twostroke.assembly.optional import embedder, reranker
from twostroke.assembly.settings.engine_settings import TaskSettings
from twostroke.assembly.settings.resolver import Resolver
from twostroke.models.common.forms import EMBEDDINGS, Form, tokens_form
from twostroke.ops.products.embed import Embed
from twostroke.ops.program.model import Model
from twostroke.ops.program.values import TOKEN_TYPES
from twostroke.runner.folder import read_folder
from twostroke.runner.retrieval.sentence_files import SentenceFiles, read_sentence_files
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import ConfigError, CorruptModel, UnsupportedModel
from twostroke.types.pooling import Pooling, Task
from twostroke.types.spec.fields import Fields
from twostroke.weights.json_file import read_object

if TYPE_CHECKING:
    from twostroke.runner.retrieval.embedder import Embedder
    from twostroke.runner.retrieval.reranker import Reranker

AUTO = "auto"


class Texts(Struct, frozen=True):
    """The objects that make prompts from texts, and results from rows. Both are None where the model generates text."""

    embedder: Embedder | None = None
    reranker: Reranker | None = None


def read_for_task(resolver: Resolver, folder: Path, heads: Path | None) -> tuple[Model, SentenceFiles]:
    """Returns the model of a folder for the task that it is served for, and its sentence files. Raises TwostrokeError.
    """
    files = read_sentence_files(folder)
    asked = resolver.asked_value(TaskSettings.task)
    spec = read_folder(folder, heads)
    if spec.task is Task.GENERATE and asked in (None, AUTO) and files.present:
        word = Task.RERANK if files.pairs else Task.EMBED
        spec = read_folder(folder, heads, _form(word, folder))
        resolver.put(TaskSettings.task, spec.task, "the files of sentence-transformers are next to the checkpoint")
    elif asked in (None, AUTO):
        resolver.put(TaskSettings.task, spec.task, f"what a {spec.architecture} is for")
    else:
        if spec.task is not asked:
            spec = read_folder(folder, heads, _form(Task(asked), folder))
        resolver.pick(TaskSettings.task, spec.task, "asked for")
    _put_pooling(resolver, spec, files)
    return spec, files


def _form(task: Task, folder: Path) -> Form:
    if task is Task.RERANK:
        return tokens_form(reranker.answer_tokens(Tokenizer.from_folder(folder)))
    return EMBEDDINGS if task is Task.EMBED else Form()


def _put_pooling(resolver: Resolver, spec: Model, files: SentenceFiles) -> None:
    asked = resolver.asked_value(TaskSettings.pooling)
    if spec.task is Task.GENERATE:
        if asked is not None:
            raise ConfigError(
                "--pooling is for models that make vectors.", fix="Leave it out, or start with --task embed."
            )
        resolver.put(TaskSettings.pooling, None, "the model generates text")
        return
    usual = Pooling.CLS if spec.whole_prompts else Pooling.LAST
    if spec.task is Task.RERANK:
        if asked not in (None, usual):
            raise ConfigError(f"--pooling {asked} is not how this model scores.", fix="Leave it out.")
        resolver.put(TaskSettings.pooling, usual, "what the model's scores are made of")
    elif files.pooling is not None:
        resolver.pick(TaskSettings.pooling, files.pooling, "the files of sentence-transformers")
    else:
        resolver.pick(TaskSettings.pooling, usual, "default: no file of sentence-transformers says it")


def build_texts(
    spec: Model, pooling: Pooling | None, files: SentenceFiles, tokenizer: Tokenizer, folder: Path
) -> Texts:
    """Returns the objects that embed or score texts with a loaded model; empty for a model that generates text.

    Raises UnsupportedModel for a classifier whose labels are not one score.
    """
    if spec.task is Task.GENERATE or pooling is None:
        return Texts()
    width = spec.program.logits.width
    if spec.task is Task.EMBED:
        return Texts(embedder=embedder.Embedder(tokenizer, pooling, _vector_width(width, files), files))
    fields = Fields(read_object(folder / "config.json"), "config.json")
    if not any(name.endswith("ForSequenceClassification") for name in fields.texts("architectures")):
        return Texts(reranker=reranker.TokenReranker(tokenizer))
    if _labels(fields) == [reranker.NO, reranker.YES]:
        reranker.answer_tokens(tokenizer)  # the template needs these tokens
        return Texts(reranker=reranker.TokenReranker(tokenizer))
    if width != 1:
        raise UnsupportedModel(
            f"This classifier has {width} labels.",
            why="A score of two texts is one number.",
            fix="Use a checkpoint of a reranker, with one label.",
        )
    return Texts(reranker=reranker.PairReranker(tokenizer, pooling, _is_raw(fields), _has_types(spec)))


def _vector_width(width: int, files: SentenceFiles) -> int:
    """Returns the number of values in a vector made from pooled rows of `width`. Raises CorruptModel if the first Dense
    layer reads rows of another width."""
    if not files.dense:
        return width
    expected = files.dense[0].weight.shape[1]
    if expected != width:
        raise CorruptModel(
            f"The model's rows have {width:,} numbers, and its step Dense reads {expected:,}.",
            why="The files of sentence-transformers belong to another checkpoint.",
            fix="Download the model again.",
        )
    return files.dense[-1].outputs


def _labels(fields: Fields) -> list[object]:
    """The labels of a classifier in the order of its rows."""
    group = fields.group("id2label")
    values = {} if group is None else group.values
    return [values.get(str(index)) for index in range(len(values))]


def _has_types(spec: Model) -> bool:
    """Returns whether the second text of a pair has a token type of its own."""
    tables = [call.table for call in spec.plain.body if isinstance(call, Embed) and call.token_ids == TOKEN_TYPES]
    return any(table.rows > 1 for table in tables)


def _is_raw(fields: Fields) -> bool:
    """Returns whether a cross-encoder's scores have no activation, by sentence-transformers' files. Raises
    UnsupportedModel for an activation that is not implemented."""
    group = fields.group("sentence_transformers")
    old = fields.text("sbert_ce_default_activation_function", "")
    word = old if group is None else group.text("activation_fn", old)
    name = word.rsplit(".", 1)[-1]
    if name not in ("", "Sigmoid", "Identity"):
        raise UnsupportedModel(
            f"config.json: the activation {word[:60]!r} of a cross-encoder is not implemented.",
            why="Implemented: Sigmoid, Identity.",
        )
    return name == "Identity"
