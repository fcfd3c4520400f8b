"""The files that ship inside the package: the embedded model `spark`, its drafts, templates, a text for calibration."""

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def spark_path() -> Path:
    """The Hugging Face folder of the embedded model (bfloat16, about 10 MB)."""
    return _HERE / "spark"


def spark_draft_path() -> Path:
    """The folder of spark's draft for speculative decoding (bfloat16, about 2 MB); it shares spark's tokenizer."""
    return _HERE / "spark_draft"


def spark_medusa_path() -> Path:
    """The folder of Medusa heads for spark (bfloat16, about 1 MB)."""
    return _HERE / "spark_medusa"


def spark_eagle_path() -> Path:
    """Returns the folder of an EAGLE layer for spark, the embedded model (bfloat16, about 1 MB)."""
    return _HERE / "spark_eagle"


def calibration_text() -> str:
    """Plain English, questions with answers, Python, JSON and lists: what `twostroke quantize` measures inputs on."""
    return (_HERE / "calibration" / "text.txt").read_text(encoding="utf-8")


def chat_template(name: str) -> str:
    """A chat template for models whose folder has none: `name` is a file of templates/ without its ending."""
    return (_HERE / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
