"""Matrices that the formats' own libraries packed and unpacked (make_golden.py): we read what they unpack.

They were made with compressed-tensors 0.20.0, mlx 0.32.4, bitsandbytes 0.50.2, AutoAWQ 0.2.9 and HQQ 0.2.8, which are
no dependencies here.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from twostroke.weights.checkpoint import Checkpoint

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.safetensors"))

ROUNDED = {"bitsandbytes-int8": 2e-3, "compressed-nvfp4": 4e-3}
"""Relative errors, because these libraries give float16 and bfloat16."""


def test_all_libraries_are_there():
    names = [path.stem for path in GOLDEN]
    assert len(names) == 31
    assert {name.partition("-")[0] for name in names} == {"awq", "bitsandbytes", "compressed", "hqq", "mlx"}


@pytest.mark.parametrize("path", GOLDEN, ids=[path.stem for path in GOLDEN])
def test_what_the_library_unpacks(path, tmp_path):
    with safe_open(path, "pt") as file:
        config = json.loads(file.metadata()["config"])
        expected = file.get_tensor("expected").numpy()
    member = "quantization_config" if "quant_method" in config else "quantization"
    (tmp_path / "config.json").write_text(json.dumps({member: config}))
    (tmp_path / "model.safetensors").write_bytes(path.read_bytes())
    with Checkpoint.open(tmp_path) as checkpoint:
        found = checkpoint.read("m.weight")
    assert found.shape == expected.shape and np.abs(expected).max() > 0.01
    tolerance = ROUNDED.get(path.stem, 3e-7)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=3e-8)
