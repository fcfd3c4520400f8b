"""Finds the facts about a model on this machine without reading its weights: its shape, its template, its files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twostroke.types.errors import ModelError, ModelNotFound, TwostrokeError
from twostroke.types.reading.user_path import is_there

if TYPE_CHECKING:
    from twostroke.lab.planner.fit import MemoryFit
    from twostroke.weights.hub.hub import ModelFolder

_LICENSES = ("LICENSE", "LICENSE.txt", "LICENSE.md")
LICENSE_KEY = "general.license"


@dataclass(frozen=True)
class ShownModel:
    """The facts about a model; sizes are in bytes. template: the names of its chat templates. format: how the model
    writes thoughts and tool calls, found from its template; or why this is not known.

    files: each file with its size. packed: the packed files that a start maps. fit: whether it fits into memory; a text
    gives the reason where this is not known.
    """

    name: str
    reference: str | None
    architecture: str
    task: str
    parameters: int
    active_parameters: int
    layers: int
    context: int
    vocabulary: int
    quantization: str
    template: tuple[str, ...]
    format: str
    license: str
    revision: str | None
    folder: str
    files: dict[str, int]
    packed: dict[str, int]
    fit: MemoryFit | str

    def as_json(self) -> dict[str, Any]:
        """Returns the facts as plain values."""
        fit = {"why_unknown": self.fit} if isinstance(self.fit, str) else {"fits": self.fit.fits, **asdict(self.fit)}
        return {**asdict(self), "fit": fit}

    def words(self) -> str:
        """Returns one line for each fact, for people."""
        active = f", {_count(self.active_parameters)} of them for a token"
        rows = {
            "reference": self.reference or "",
            "architecture": f"{self.architecture}, {self.layers} layers, for {self.task}",
            "parameters": _count(self.parameters) + (active if self.active_parameters < self.parameters else ""),
            "quantization": self.quantization,
            "context": f"{self.context:,}",
            "vocabulary": f"{self.vocabulary:,}",
            "template": f"{', '.join(self.template) or 'none'}{f' ({self.format})' if self.format else ''}",
            "licence": self.license or "not named",
            "revision": self.revision or "",
            "folder": self.folder,
            "files": ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in self.files.items()),
            "packed": ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in self.packed.items()) or "not yet",
            "fits": self.fit if isinstance(self.fit, str) else self.fit.words,
        }
        return "\n".join(f"  {name:<13}{text}" for name, text in rows.items() if text)


def facts_of(model: str, revision: str | None = None) -> ShownModel:
    """Returns the facts about a model. The network is not used. Raises ModelNotFound where the model is not on this
    machine, UnsupportedModel, CorruptModel."""
    from twostroke.assembly.settings.env import read_machine
    from twostroke.assembly.settings.names import meant
    from twostroke.lab.planner.fit import fit_or_reason
    from twostroke.lab.planner.model_config import read_model
    from twostroke.weights.hub.hub import EMBEDDED

    name = meant(model)
    found = found_here(model, revision)
    planned = read_model(EMBEDDED if name == EMBEDDED else str(found.path))
    spec, kept = planned.spec, read_machine().cache_folder
    templates, form = _talk(found.path, kept)
    return ShownModel(
        name=model,
        reference=_reference(model),
        architecture=spec.architecture,
        task=str(spec.task),
        parameters=spec.parameters(),
        active_parameters=spec.plain.active_parameters,
        layers=spec.num_layers,
        context=spec.longest_context,
        vocabulary=spec.vocab_size,
        quantization=_quantization(found.path, planned.quantized, spec.dtype),
        template=templates,
        format=form,
        license=license_of(model, found.path),
        revision=found.revision,
        folder=str(found.path if found.path.is_dir() else found.path.parent),
        files=model_files(found.path),
        packed=_packed(found.path, kept),
        fit=fit_or_reason(planned),
    )


def found_here(model: str, revision: str | None = None) -> ModelFolder:
    """Returns the folder of a model, without any download. Raises ModelNotFound."""
    from twostroke.assembly.folders import SHIPPED
    from twostroke.assembly.settings.names import meant
    from twostroke.weights.hub.hub import ModelFolder, resolve_model
    from twostroke.weights.hub.reference import reference_of

    name = meant(model)
    if name in SHIPPED:
        return ModelFolder(SHIPPED[name](), model, None)
    try:
        return resolve_model(name, revision, offline=True)
    except ModelNotFound as error:
        if is_there(name) or reference_of(name) is None:
            raise
        fix = f"`twostroke pull {model} --dry-run` asks the hub, and `twostroke pull {model}` downloads it."
        others = f" {error.why}" if error.why.startswith("There are") else ""  # other files of the repository are here
        raise ModelNotFound(f"{model} is not on this machine.", why=error.what + others, fix=fix) from None


def named_file(model: str, path: Path) -> str:
    """Returns the full name, with the file, where `model` names a hub repository without a file and `path` is the file
    that was found. Returns `model` unchanged in other cases."""
    from twostroke.assembly.settings.names import meant
    from twostroke.weights.hub.reference import reference_of

    name = meant(model)
    reference = None if is_there(name) or not path.is_file() else reference_of(name)
    if reference is None or reference.wanted is not None:
        return model
    return f"{reference.repo_id}:{path.name}" + (f"@{reference.revision}" if reference.revision else "")


def _talk(path: Path, kept: Path) -> tuple[tuple[str, ...], str]:
    """Returns the names of a model's chat templates, and the format in which it writes thoughts and tool calls."""
    from twostroke.text.talk.learn.find import find_format
    from twostroke.text.templates.chat_template import ChatTemplate
    from twostroke.text.templates.template_files import read_sources
    from twostroke.text.tokenizer import Tokenizer
    from twostroke.weights.gguf.unfold import unfold
    from twostroke.weights.vocabularies.unfold import with_tokenizer

    try:
        folder = unfold(path, kept) if path.is_file() else with_tokenizer(path, kept)
        sources = read_sources(folder)
        template = ChatTemplate.from_folder(folder) if sources else None
        if template is None:
            return (), ""
        form = find_format(template, Tokenizer.from_folder(folder))
        return tuple(sources), f"turns as {form.name} writes them"
    except TwostrokeError as error:
        return (), f"cannot be used: {error.what}"


def _quantization(path: Path, said: str, dtype: str) -> str:
    if path.is_file():
        from twostroke.weights.gguf.file_names import quant_of

        return f"{quant_of(path.name)} (GGUF)"
    return said or f"none: {dtype}"


def license_of(model: str, path: Path) -> str:
    """Returns the name of the licence that the hub gave when the model was pulled. Else returns the name in a GGUF
    file, or the path of the licence's text; "" where none is found."""
    from twostroke.assembly.settings.env import read_machine
    from twostroke.weights.gguf.container import GgufFile
    from twostroke.weights.store.records import RECORDS, read_record

    reference = _reference(model)
    record = None if reference is None else read_record(read_machine().cache_folder / RECORDS, reference)
    if record is not None and record.license:
        return record.license
    if path.is_file():
        try:
            file = GgufFile.open(path)
        except ModelError:
            return ""
        file.close()
        return str(file.values.get(LICENSE_KEY, ""))[:100]
    text = license_file(path)
    return "" if text is None else f"in {text}"


def license_file(path: Path) -> Path | None:
    """Returns the file with the text of a model's licence; None where there is no such file."""
    folder = path.parent if path.is_file() else path
    return next((folder / name for name in _LICENSES if (folder / name).is_file()), None)


def _reference(model: str) -> str | None:
    """Returns the full reference of a model of a hub; None for other models."""
    from twostroke.assembly.settings.names import meant
    from twostroke.weights.hub.hub import EMBEDDED
    from twostroke.weights.hub.reference import reference_of

    name = meant(model)
    found = None if name == EMBEDDED or is_there(name) else reference_of(name)
    return None if found is None else found.text


def model_files(path: Path) -> dict[str, int]:
    """Returns the sizes of a model's files in bytes, by name. The size of a link is that of the file that it leads to.
    """
    from twostroke.weights.gguf.file_names import parts_of

    if path.is_file():
        names = parts_of(path.name, [each.name for each in path.parent.iterdir()])
        return {name: (path.parent / name).stat().st_size for name in names}
    found = sorted(each for each in path.rglob("*") if each.is_file())
    return {str(each.relative_to(path)): each.stat().st_size for each in found}


def _packed(path: Path, kept: Path) -> dict[str, int]:
    """Returns the files of packed weights that were made from this model, each path with its size in bytes. Returns
    none where their folder may not be read."""
    from twostroke.weights.packed.cache_choice import PACKED
    from twostroke.weights.packed.cache_folder import cached_files

    try:
        files = cached_files(kept / PACKED)
    except OSError:
        return {}
    return {str(file.path): file.num_bytes for file in files if file.origin == str(path)}


def _count(number: int) -> str:
    return f"{number / 1e9:,.2f} billion" if number >= 1e9 else f"{number / 1e6:,.1f} million"
