"""Spark, and spark with outliers: how much of the rounding error calibration must avoid."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.spark.outliers import write_outlier_spark

from twostroke.assets import spark_path
from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.quantize.driver.calibrate import quantize_folder
from twostroke.quantize.driver.compare import compare
from twostroke.quantize.driver.loaded_model import staged_folder
from twostroke.quantize.driver.methods import METHODS, ROUNDING, Method
from twostroke.quantize.driver.texts import CalibrationText, read_texts
from twostroke.text.tokenizer import Tokenizer

TOKENS = 4096


@pytest.fixture(scope="module")
def texts() -> CalibrationText:
    return read_texts(None, Tokenizer.from_folder(spark_path()), 2048, TOKENS)


def source_of(name: str, folder: Path) -> Path:
    return spark_path() if name == "spark" else write_outlier_spark(folder / "source")


def kl_of(source: Path, folder: Path, method: Method, texts: CalibrationText) -> float:
    quantize_folder(source, folder, method, texts, 2)
    with staged_folder(source, 2) as exact, staged_folder(folder, 2, format_choice(STORED)) as other:
        return compare(exact, other, list(texts.held_out), each=False).whole.mean_kl


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shares"),
    [pytest.param("spark", {"gptq": 0.5, "awq": 0.75}, marks=pytest.mark.daily), ("outliers", {"int4": 0.5})],
    ids=str,
)
def test_calibrated_4_bits_cost_at_most_half_of_rounded_4_bits(name, shares, texts, tmp_path):
    """AWQ alone, which moves no rounding from one column to the next, has at most three quarters of the error."""
    source = source_of(name, tmp_path)
    rounded = kl_of(source, tmp_path / "rounded", ROUNDING, texts)
    for method, share in shares.items():
        cost = kl_of(source, tmp_path / method, METHODS[method], texts)
        assert cost <= share * rounded, (method, cost, rounded)
