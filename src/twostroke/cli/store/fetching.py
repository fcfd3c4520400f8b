"""Downloads a model of a hub. Its size, its licence and whether it fits are known before the first byte of its weights.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from twostroke.cli.shared.progress import Progress, progress_bar
from twostroke.types.errors import (
    ConfigError,
    ModelError,
    ModelNotFound,
    OutOfMemory,
    TwostrokeError,
    UnsupportedModel,
)
from twostroke.types.reading.user_path import is_there

if TYPE_CHECKING:
    from twostroke.lab.planner.fit import MemoryFit
    from twostroke.weights.hub.hub import ModelFolder
    from twostroke.weights.hub.offer import Offer

Say = Callable[[str], None]


@dataclass(frozen=True)
class PullWish:
    """A model to be downloaded. anyway: whether to download it even where it does not fit or cannot run. say: a
    function that prints what is downloaded. shows: a function that shows the progress of a stage."""

    model: str
    revision: str | None = None
    endpoint: str | None = None
    anyway: bool = False
    say: Say = field(default=lambda text: None)
    shows: Callable[[str], AbstractContextManager[Progress]] = progress_bar


@dataclass(frozen=True)
class Prospect:
    """The facts about a model that are known before its download. offer: the files and sizes that the hub offers; None
    where the hub was not asked or did not answer. fit: whether the model fits into memory; a text gives the reason
    where this is not known. refusal: the error against this download, such as too little memory."""

    name: str
    reference: str | None
    offer: Offer | None = None
    fit: MemoryFit | str = ""
    refusal: TwostrokeError | None = None

    def meaning(self, model: str) -> str:
        """Returns the line that tells what a short name or an alias means; "" where `model` is the reference itself."""
        return "" if self.reference in (None, model) else f"{model} = {self.reference}"

    def words(self) -> str:
        """Returns the text that a person sees before the download."""
        offer = self.offer
        if offer is None:
            return ""
        files = offer.gguf or f"{len(offer.sizes)} files"
        todo = f"{offer.missing_bytes / 1e9:,.2f} GB to download" if offer.missing_bytes else "all of it is here"
        fit = self.fit if isinstance(self.fit, str) else self.fit.words
        return (
            f"  files    {files}, {offer.num_bytes / 1e9:,.2f} GB; {todo}\n"
            f"  licence  {offer.license or 'not named'}{'; gated, and this user has access' if offer.gated else ''}\n"
            f"  fits     {fit}"
        )

    def as_json(self) -> dict[str, Any]:
        """Returns the facts as plain values."""
        from dataclasses import asdict

        offer = self.offer
        if offer is None:
            return {"reference": self.reference}
        fit = {"why_unknown": self.fit} if isinstance(self.fit, str) else {"fits": self.fit.fits, **asdict(self.fit)}
        return {
            "reference": self.reference,
            "commit": offer.commit,
            "files": [{"name": name, "bytes": size} for name, size in offer.sizes.items()],
            "bytes": offer.num_bytes,
            "missing_bytes": offer.missing_bytes,
            "license": offer.license or None,
            "gated": offer.gated,
            "fit": fit,
            "refusal": None if self.refusal is None else f"{self.refusal.what} {self.refusal.why}".strip(),
        }


def prospect_of(wish: PullWish) -> Prospect:
    """Asks the hub which model the name means, and whether it would fit. Raises ModelNotFound, ConfigError."""
    from twostroke.assembly.settings.env import hub_offline
    from twostroke.assembly.settings.names import meant
    from twostroke.weights.hub.hub import EMBEDDED
    from twostroke.weights.hub.reference import reference_of

    name = meant(wish.model)
    reference = None if name == EMBEDDED or is_there(name) else reference_of(name)
    if reference is None:
        return Prospect(name, None)
    if hub_offline():
        return Prospect(name, reference.text)
    from twostroke.weights.hub.offer import offer_of

    offer = offer_of(reference, wish.revision, wish.endpoint)
    if offer is None:
        return Prospect(name, reference.text)
    fit = _fit(wish, name, offer)
    if isinstance(fit, TwostrokeError):
        fix = f"{fit.fix} --anyway downloads it all the same.".strip()
        return Prospect(name, reference.text, offer, fit.what, refusal=UnsupportedModel(fit.what, why=fit.why, fix=fix))
    return Prospect(name, reference.text, offer, fit, refusal=_refusal(offer, fit))


def bring(wish: PullWish, prospect: Prospect) -> ModelFolder:
    """Downloads the files that are missing. Continues where an earlier run stopped. Raises `prospect.refusal` where
    there is one and the user does not want the model all the same."""
    from twostroke.assembly.settings.env import hub_offline
    from twostroke.weights.hub.hub import resolve_model

    heed(wish, prospect)
    offer, name, revision = prospect.offer, prospect.name, wish.revision
    if offer is not None and offer.gguf:  # the file is known: the hub need not be asked again which file is meant
        name, revision = f"{offer.reference.repo_id}:{offer.gguf}", offer.place.revision
    with wish.shows("download") as progress:
        folder = resolve_model(
            name, revision=revision, offline=hub_offline(), endpoint=wish.endpoint, progress=progress
        )
    _keep_record(wish, prospect)
    return replace(folder, source=wish.model)


def heed(wish: PullWish, prospect: Prospect) -> None:
    """Raises `prospect.refusal`, if there is one. Does not raise it where the model is here already, where --anyway was
    given, or where the user confirms the download."""
    refusal, offer = prospect.refusal, prospect.offer
    if refusal is None or wish.anyway or offer is None or not offer.missing_bytes:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.echo(f"{refusal.what} {refusal.why}", err=True)
        if click.confirm("Download it all the same?", err=True):
            return
    raise refusal


def pack(wish: PullWish, folder: ModelFolder) -> Path | None:
    """Packs the weights as the first start would. Where this fails, prints a sentence and returns None; the start then
    packs them."""
    from twostroke.assembly.early.packed_ahead import pack_ahead

    def report(sentence: str) -> None:
        click.echo(sentence, err=True)

    try:
        with wish.shows("pack") as progress:
            return pack_ahead(str(folder.path), {}, progress, report)
    except TwostrokeError as error:
        click.echo(f"warning: The weights are not packed ahead. {error}", err=True)
    except KeyboardInterrupt:
        click.echo("Packing was interrupted: the model is here, and its first start packs it.", err=True)
    return None


def _fit(wish: PullWish, name: str, offer: Offer) -> MemoryFit | str | TwostrokeError:
    """Returns whether the model fits; a text where this cannot be known; an error where the model cannot run."""
    from twostroke.lab.planner.fit import fit_of
    from twostroke.lab.planner.model_config import read_header, read_model
    from twostroke.weights.hub.remote_header import fetch_headers

    try:
        if offer.gguf and not offer.missing_bytes:
            return fit_of(read_header(name, offer.place.folder / "snapshots" / offer.commit / offer.gguf))
        if not offer.gguf:
            return fit_of(read_model(name, wish.revision, wish.endpoint))
        with tempfile.TemporaryDirectory(prefix="twostroke-header-") as folder:
            return fit_of(read_header(name, fetch_headers(offer, Path(folder))))
    except ModelNotFound:
        raise
    except (ModelError, ConfigError) as error:
        return error
    except TwostrokeError as error:
        return f"not known: {error}"
    except OSError as error:
        return f"not known: {error.strerror or error}"
    except Exception as error:
        from twostroke.weights.hub.problems import is_transport_error, status_of

        if is_transport_error(error) or status_of(error) is not None:
            return "not known: the hub did not send the beginning of the file"
        raise


def _refusal(offer: Offer, fit: MemoryFit | str) -> TwostrokeError | None:
    if isinstance(fit, str) or fit.fits:
        return None
    smaller = _smaller(offer, fit)
    way = f"Take {smaller}, or download it all the same with --anyway." if smaller else "--anyway downloads it."
    return OutOfMemory(
        f"{offer.reference.text} does not fit in the memory of this machine.",
        why=f"It needs {fit.needed_bytes / 1e9:,.2f} GB, and {fit.usable_bytes / 1e9:,.2f} GB are free for it.",
        fix=way,
    )


def _smaller(offer: Offer, fit: MemoryFit) -> str:
    """Returns the largest quantization of the repository that would fit; "" without one. The memory needed is taken to
    be proportional to the size of the file."""
    from twostroke.weights.gguf.file_names import quant_of

    own = offer.models.get(offer.gguf, 0)
    sizes = {quant_of(name): size for name, size in offer.models.items() if 0 < size < own}
    fitting = {quant: size for quant, size in sizes.items() if fit.needed_bytes * size / own <= fit.usable_bytes}
    best = max(fitting, key=lambda quant: fitting[quant], default="")
    return f"{offer.reference.repo_id}:{best}" if best else ""


def _keep_record(wish: PullWish, prospect: Prospect) -> None:
    from twostroke.assembly.settings.env import read_machine
    from twostroke.weights.store.records import RECORDS, PullRecord, keep_record

    offer = prospect.offer
    if offer is None:
        return
    said = (offer.commit, dict(offer.sizes), offer.license, offer.gated, time.time())
    record = PullRecord(offer.reference.text, offer.reference.repo_id, *said)
    problem = keep_record(read_machine().cache_folder / RECORDS, record)
    if problem is not None:
        wish.say(f"The hub's facts about the model are not kept: {problem}.")
