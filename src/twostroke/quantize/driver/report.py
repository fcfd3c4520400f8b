"""The report of quantizing a model, as data and as text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.quantize.driver.calibrate import Progress, Quantized, no_progress
from twostroke.quantize.driver.compare import ModelComparison, compare
from twostroke.quantize.driver.loaded_model import staged_folder
from twostroke.quantize.driver.texts import CalibrationText

WORST = 5
"""How many stages and products the text of a report names."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of quantizing a model, and its cost. num_bytes: the bytes of the weights, before and after. compared:
    the comparison with the original; None without one."""

    target: str
    quantized: Quantized
    num_bytes: tuple[int, int]
    used_tokens: int
    held_out_tokens: int
    compared: ModelComparison | None

    @property
    def nearest(self) -> int:
        """How many experts' matrices got too few rows of the text to be calibrated, and have the nearest codes."""
        return sum(error.nearest for error in self.quantized.errors)

    def as_json(self) -> dict[str, Any]:
        """Returns the report as plain values, for --json and for the folder."""
        found: dict[str, Any] = {
            "target": self.target,
            "folder": str(self.quantized.folder),
            "group": self.quantized.group,
            "bytes": {"before": self.num_bytes[0], "after": self.num_bytes[1]},
            "calibration_tokens": self.used_tokens,
            "products": [asdict(each) for each in self.quantized.errors],
            "nearest_codes": self.nearest,
            "kept": dict(self.quantized.kept),
        }
        if self.compared is not None:
            whole, (before, after) = self.compared.whole, self.compared.whole.perplexities
            found |= {
                "held_out_tokens": self.held_out_tokens,
                "kl_nats": whole.mean_kl,
                "perplexity": {"before": before, "after": after},
                "same_best_token": whole.same / max(1, whole.positions),
                "stages": [asdict(each) for each in self.compared.stages],
            }
        return found

    def as_text(self) -> str:
        """Returns the report as a few lines of text, the largest errors first."""
        before, after = self.num_bytes
        lines = [f"{self.quantized.folder}: {self.target}, {before / 1e6:,.1f} MB -> {after / 1e6:,.1f} MB"]
        if self.compared is not None:
            whole, (perplexity, changed) = self.compared.whole, self.compared.whole.perplexities
            lines += [
                f"on {self.held_out_tokens:,} tokens that calibration has not seen:",
                f"  KL {whole.mean_kl:.2e} nats, perplexity {perplexity:.4g} -> {changed:.4g}, "
                f"same best token {whole.same / max(1, whole.positions):.2%}",
            ]
            dearest = sorted(self.compared.stages, key=lambda stage: -stage.kl)[:WORST]
            lines += ["  where one stage alone is quantized, the dearest:"] if dearest else []
            lines += [f"    KL {stage.kl:.2e}  {stage.name}" for stage in dearest]
        worst = sorted(self.quantized.errors, key=lambda error: -error.chosen)[:WORST]
        lines += ["relative errors of products, the largest (nearest codes -> chosen codes):"] if worst else []
        lines += [f"    {error.rounding:.2%} -> {error.chosen:.2%}  {error.module}" for error in worst]
        if self.nearest:
            lines.append(
                f"experts' matrices that met too few rows of the text, and have the nearest codes: {self.nearest}"
            )
        if self.quantized.kept:
            names = list(self.quantized.kept)
            lines.append(f"kept as they were: {', '.join(names[:WORST])}{' and more' if len(names) > WORST else ''}")
        return "\n".join(lines)


def make_report(
    source: Path,
    target: str,
    quantized: Quantized,
    texts: CalibrationText,
    threads: int,
    progress: Progress = no_progress,
    read_from: Path | None = None,
) -> Report:
    """Makes the report with a comparison of the original and the quantized model on the held-out text. read_from: where
    the result is a GGUF file, the folder into which it was converted for reading. Raises ModelError."""
    runs = list(texts.held_out)

    def on_stage(done: int, total: int) -> None:
        progress(done, total, "stages")

    with staged_folder(source, threads) as exact:
        with staged_folder(read_from or quantized.folder, threads, format_choice(STORED)) as other:
            compared = compare(exact, other, runs, on_stage)
    return plain_report(source, target, quantized, texts, compared)


def plain_report(
    source: Path, target: str, quantized: Quantized, texts: CalibrationText, compared: ModelComparison | None
) -> Report:
    """Makes a report from its parts, without running a model. compared: the quantized model's divergence from the
    original, if it was measured; else None."""
    sizes = _weight_bytes(source), _weight_bytes(quantized.folder)
    return Report(target, quantized, sizes, texts.used.size, texts.held_out.size, compared)


def _weight_bytes(folder: Path) -> int:
    """Returns the bytes of the weights in a folder, or of a GGUF file."""
    if folder.is_file():
        return folder.stat().st_size
    return sum(file.stat().st_size for ending in ("*.safetensors", "*.gguf") for file in folder.glob(ending))
