"""Names of GGUF files: finds the file that is meant among the files of a folder or a repository."""

from __future__ import annotations

import re
from collections.abc import Iterable

from twostroke.types.errors import ModelNotFound

ENDING = ".gguf"
_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_BESIDE = re.compile(r"(?:^|[-._])(mmproj|imatrix)(?:[-._]|$)")
BESIDE = {"mmproj": "a projector of images", "imatrix": "calibration data"}
"""Other files with the same ending that lie next to models: a word of the file's name, and what the file holds."""
_QUANT = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|NVFP4|B?F16|FP16|F32|FP32))$", re.IGNORECASE)

_K_FORM = re.compile(r"(I?Q\d_K)_[SML]")


def whole_models(names: Iterable[str]) -> list[str]:
    """Returns the names of models; for a model in several files, the first file. Projectors of images and calibration
    data are left out."""
    found = []
    for name in sorted(names):
        part = _PART.search(stem_of(name.lower()))
        if name.lower().endswith(ENDING) and not beside(name) and (part is None or part[1] == "00001"):
            found.append(name)
    return found


def stem_of(name: str) -> str:
    """Returns the name without its ending, which may also be in capitals."""
    return name[: -len(ENDING)] if name.lower().endswith(ENDING) else name


def beside(name: str) -> str:
    """Returns a description of a GGUF file that lies next to models, such as an mmproj file, from its name; "" for a
    file that may be a model."""
    found = _BESIDE.search(stem_of(name.rpartition("/")[2].lower()))
    return BESIDE[found[1]] if found else ""


PREFERRED = ("F16", "BF16", "F32", "Q8_0")
"""The formats in order of preference, for encoders of images that differ only by their format."""


def projectors_for(model: str, names: Iterable[str]) -> list[str]:
    """Returns the encoders of images that may belong to a model's file: those whose names contain its name, else all.
    Where there are several formats, it returns the files of the most preferred one."""
    found = [name for name in sorted(names) if beside(name) == BESIDE["mmproj"]]
    base = _PART.sub("", stem_of(model)).lower()
    base = _QUANT.sub("", base).strip("-._")
    own = [name for name in found if base and base in name.lower()] or found
    for word in PREFERRED if len(own) > 1 else ():
        if some := [name for name in own if quant_of(name) == word]:
            return some
    return own


def parts_of(name: str, names: Iterable[str]) -> list[str]:
    """Returns all parts of the model that begins with this file."""
    found = _PART.search(stem_of(name))
    if found is None:
        return [name]
    stem, total = stem_of(name)[: found.start()], found[2]
    pattern = re.compile(re.escape(stem) + r"-\d{5}-of-" + total + re.escape(ENDING), re.IGNORECASE)
    return sorted(each for each in names if pattern.fullmatch(each))


def first_part(name: str) -> str:
    """Returns the name of the first file of a split model, for the name of any of its files; returns other names
    unchanged."""
    found = _PART.search(stem_of(name))
    return name if found is None else f"{name[: found.start()]}-00001-of-{found[2]}{name[found.end() :]}"


def near_quants(word: str) -> tuple[str, ...]:
    """Returns the names of quantizations that are accepted where no file has the name `word`. They have about as many
    bits for each weight. Publishers put UD- before quantizations that give important tensors more bits than others."""
    plain = word.upper()
    grown = _K_FORM.fullmatch(plain)
    return () if plain.startswith("UD-") else (f"UD-{plain}", *([f"UD-{grown[1]}_XL"] if grown else []))


def quant_of(name: str) -> str:
    """Returns the quantization in a file's name: "Llama-3.2-1B-Q4_K_M.gguf" -> "Q4_K_M". Returns the name without its
    ending where it names none."""
    stem = _PART.sub("", stem_of(name.rpartition("/")[2]))
    found = _QUANT.search(stem)
    return found[1].upper() if found else stem


def named(models: Iterable[str], wanted: str) -> list[str]:
    """Returns the models with this name: with or without folder, ending and number of the part. Where no model is
    spelled like that, capitals are ignored."""
    models, word = list(models), stem_of(wanted)
    found = [name for name in models if word in _spellings(name)]
    return found or [name for name in models if word.lower() in _spellings(name.lower())]


def _spellings(name: str) -> set[str]:
    stem = stem_of(name)
    return {text for each in (stem, stem.rpartition("/")[2]) for text in (each, _PART.sub("", each))}


def of_quant(models: Iterable[str], word: str) -> list[str]:
    """Returns the files of a quantization; where there are none, the files of the first accepted replacement."""
    models = list(models)
    for quant in (word.upper(), *near_quants(word)):
        if found := [name for name in models if quant_of(name) == quant]:
            return found
    return []


def chosen(names: Iterable[str], wanted: str | None, place: str) -> str:
    """Returns the first file of the wanted model. wanted: a file's name or a quantization; None for the only model.

    Raises ModelNotFound with a list of what there is.
    """
    models = whole_models(names)
    if wanted is None:
        meant = models
    else:
        meant = named(models, wanted) or of_quant(models, stem_of(wanted))
    if len(meant) == 1:
        return meant[0]
    if not models:
        why = "Projectors of images, calibration data and later parts of split files do not count."
        raise ModelNotFound(f"{place} holds no GGUF file of a model.", why=why, fix="Check the name.")
    quants = ", ".join(sorted(f"{quant_of(name)} ({name})" for name in (meant or models)[:40]))
    if wanted is not None and not meant:
        raise ModelNotFound(f"{place} has no {wanted[:80]}.", why=f"There are {quants}.", fix="Name one of these.")
    raise ModelNotFound(
        f"{place} holds {len(meant)} models that could be meant.", why=f"There are {quants}.", fix="Name one of these."
    )
