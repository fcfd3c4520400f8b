"""The tables of published models follow docs/published.json: each format of ours has a row, and README has the
errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tools.errors.measure_published import merged, rows_of, with_result
from tools.pages.published import (
    BEGIN,
    END,
    best_of_ours,
    dominated,
    published_tables,
    read_record,
    readme_page,
)

from twostroke.ops.quant.formats import WEIGHT_NAMES


def row(engine: str, weights: str, bits: float, error: float, kv: str = "bf16", **more: Any) -> dict[str, Any]:
    key = {"engine": engine, "weights": weights, "kv": kv}
    return {**key, "bits": bits, "error": error, "same": 0.9, "kl": 0.01, **more}


def record() -> dict[str, Any]:
    fast, slow = {"prefill 512": 300.0, "decode 1 x 512": 20.0}, {"prefill 512": 150.0, "decode 1 x 512": 30.0}
    own = {"bf16": 16.0, "int8": 8.1, "int6": 6.6, "int5": 5.1, "int4": 4.3}
    rows = [row("twostroke", name, bits, 1 / bits) for name, bits in own.items()]
    rows += [row("twostroke", "f32", 32.0, 0.01, kv) for kv in ("int8", "int4")] + [row("twostroke", "f32", 32, 0.001)]
    rows += [row("twostroke", "bf16", 16.0, 0.01, "int8"), row("llama_cpp", "Q6_K", 8.2, 0.2, speed=slow)]
    rows += [row("twostroke", "Q6_K", 8.2, 0.19)]
    rows[1]["speed"] = fast
    return {"models": {"one": {"positions": 7, "machine": "m", "rows": rows}}}


def test_every_format_of_ours_has_a_row_for_each_model_or_a_word_that_it_was_not_measured() -> None:
    page, found = published_tables(), read_record()
    for model, each in found["models"].items():
        part = page.split(f"### {model}\n")[1].split("### ")[0]
        for name in WEIGHT_NAMES:
            if name != "f32":
                assert (f"| Twostroke {name} |" in part) != (f"`--weights {name}`" in part)
        for kind in ("bf16", "int8", "int4"):
            assert (f"| f32 | {kind} |" in part) != (f"`--kv-format {kind}`" in part)
        assert each["positions"] > 500


def test_a_model_without_a_format_that_another_has_says_so() -> None:
    two = record()
    rows = two["models"]["one"]["rows"]
    fewer = [each for each in rows if each["weights"] != "int5"]
    two["models"]["two"] = {"positions": 5, "machine": "m", "rows": fewer}
    page = published_tables(two)
    assert "Not measured on this model: `--weights int5`." in page.split("### two")[1]
    assert "Not measured" not in page.split("### two")[0] and "7 and 5 positions" in page
    two["models"]["one"]["rows"][3]["speed"] = {"prefill 512": 400.4}
    assert "| Twostroke int5 | 5.1 | 0.196 | - | 400 | - | - |" in readme_page(two, f"{BEGIN}{END}")


@pytest.mark.parametrize(
    ("left_out", "said"),
    [(("int6", "bf16"), "--weights int6"), (("f32", "int4"), "--kv-format int4")],
)
def test_a_format_without_a_record_is_refused_by_name(left_out: tuple[str, str], said: str) -> None:
    less = record()
    rows = less["models"]["one"]["rows"]
    less["models"]["one"]["rows"] = [each for each in rows if (each["weights"], each["kv"]) != left_out]
    with pytest.raises(SystemExit, match=said):
        published_tables(less)


def test_a_row_names_our_format_of_no_more_bits_and_speeds_are_ratios() -> None:
    page = published_tables(record())
    assert "| llama.cpp Q6_K | 8.20 | 0.2000 | 90.0% | 0.0100 | int8, 0.123 | 0.50 | 1.50 |  |" in page
    assert "| Twostroke int8 | 8.10 | 0.1235 | 90.0% | 0.0100 |  | 1.00 | 1.00 |  |" in page
    assert "| Twostroke Q6_K, the same file | 8.20 |" in page and "these: None." in page
    assert page.count("| bf16 | int8 | 0.0100 |") == 1


def test_a_format_that_another_beats_is_named() -> None:
    found = record()["models"]["one"]["rows"]
    assert dominated(found) == [] and (best_of_ours(found, 5.0) or {})["weights"] == "int4"
    assert best_of_ours(found, 4.0) is None
    found[1]["error"] = 0.9
    assert dominated(found) == ["int8"]


def test_readme_has_errors_and_speeds_of_the_record() -> None:
    text = f"before\n{BEGIN}old\n{END}after\n"
    made = readme_page(record(), text)
    assert made.startswith("before\n") and made.endswith("after\n") and "old" not in made
    assert "| llama.cpp Q6_K | 8.2 | 0.200 | 150 | 30 | - |\n| Twostroke int8 | 8.1 | 0.123 | 300 | 20 | - |" in made
    assert "int6" not in made and "Twostroke Q6_K" not in made and "f32" not in made
    assert "Speeds: one, two threads, m." in made
    assert readme_page(record(), made) == made


RESULT = {
    "machine": "here",
    "positions": 9,
    "raw": {
        "twostroke int8": {"error beside float32": [0.1], "bits of all weights": [8.0], "prefill 512": [1.0, 9.0, 5.0]},
        "twostroke int8, K and V int4": {"error beside float32": [0.3]},
        "llama_cpp Q8_0": {"error beside float32": [0.2], "KL beside float32": [0.01]},
        "openvino int8": {"prefill 512": [3.0]},
    },
}


def test_rows_come_from_what_bench_compare_saves() -> None:
    assert rows_of(RESULT) == [
        {"engine": "twostroke", "weights": "int8", "kv": "bf16", "bits": 8.0, "error": 0.1}
        | {"speed": {"prefill 512": 5.0}},
        {"engine": "twostroke", "weights": "int8", "kv": "int4", "error": 0.3},
        {"engine": "llama_cpp", "weights": "Q8_0", "kv": "bf16", "error": 0.2, "kl": 0.01},
    ]


def test_what_was_not_measured_again_is_kept() -> None:
    first = with_result({}, "one", RESULT)
    again = copy.deepcopy(RESULT)
    again["raw"] = {"twostroke int8": {"error beside float32": [0.5]}}
    rows = with_result(first, "one", again)["models"]["one"]["rows"]
    assert [(each["engine"], each["weights"], each["kv"]) for each in rows] == [
        ("twostroke", "int8", "bf16"),
        ("twostroke", "int8", "int4"),
        ("llama_cpp", "Q8_0", "bf16"),
    ]
    assert rows[0]["error"] == 0.5 and rows[0]["speed"] == {"prefill 512": 5.0} and rows[0]["bits"] == 8.0
    assert merged(rows, []) == rows
