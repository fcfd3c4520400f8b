"""The steps Dense after the pooled vector, compared with sentence-transformers' formula on transformers' rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.retrieval.checkpoints import Product, encoder, rows_of, with_dense_steps
from tests.retrieval.folders import BAR, cosine_error, with_sentence_files
from tests.retrieval.test_encoders import LONG, SHORT
from tests.serve.harness import serving
from tests.weights.checkpoints import as_float32, stored
from twostroke.llm import LLM
from twostroke.quantize.gguf.write import MIXES, write_folder
from twostroke.runner.retrieval.sentence_files import read_sentence_files
from twostroke.server.build import build_server
from twostroke.types.errors import CorruptModel, InvalidRequest, ModelError, UnsupportedModel


def products(*, bias: bool = True) -> tuple[Product, Product]:
    rng = np.random.default_rng(3)
    wide, narrow = (rng.uniform(-0.11, 0.11, shape).astype(np.float32) for shape in ((90, 64), (40, 90)))
    more = {"bias": rng.uniform(-0.1, 0.1, 40).astype(np.float32)} if bias else {}
    return {"weight": wide}, {"weight": narrow, **more}


def test_embedding_gemma_has_two_products_behind_its_mean(tmp_path: Path) -> None:
    judge, library = encoder(tmp_path, "embedding-gemma")
    with_sentence_files(tmp_path, {"pooling_mode_mean_tokens": True}, prompts={"query": "query : "})
    wide, narrow = products()
    with_dense_steps(tmp_path, (wide, "linear.Identity"), (narrow, "activation.Tanh"))
    rows = [rows_of(judge, library.encode(text).ids) for text in LONG]
    pooled = np.stack([each.mean(0) for each in rows])
    expected = np.tanh(pooled @ wide["weight"].T @ narrow["weight"].T + narrow["bias"])
    with LLM(str(tmp_path), **SHORT) as llm:
        assert llm.resolved["task"] == "embed" and llm.resolved["pooling"] == "mean"
        together, raw = llm.embed(LONG), llm.embed(LONG, normalize=False)
        alone = np.concatenate([llm.embed(text) for text in LONG])
        short = llm.embed(LONG, dimensions=10)
        with pytest.raises(InvalidRequest, match="between 1 and 40"):
            llm.embed(LONG, dimensions=41)
    assert together.shape == (len(LONG), 40) and cosine_error(together, expected) < BAR
    assert np.abs(raw - expected).max() < 1e-4 * np.abs(expected).max()
    assert np.array_equal(together, alone), "an embedding depends on its neighbours"
    assert cosine_error(short, expected[:, :10]) < BAR
    with build_server(str(tmp_path), {**SHORT, "served_name": "tiny"}) as built, serving(built.parts) as live:
        data = live.post("/v1/embeddings", {"model": "tiny", "input": LONG}).json["data"]
    assert np.array_equal(np.array([each["embedding"] for each in data], np.float32), together)
    with pytest.raises(UnsupportedModel, match="Dense"):
        write_folder(tmp_path, tmp_path / "out", MIXES["Q8_0"], "small", lambda *_: None)


def test_bfloat16_tensors_of_a_step_are_widened(tmp_path: Path) -> None:
    with_sentence_files(tmp_path, {"pooling_mode_mean_tokens": True})
    wide, _ = products()
    with_dense_steps(tmp_path, (wide, "linear.Identity"), dtype="BF16")
    (step,) = read_sentence_files(tmp_path).dense
    assert step.outputs == 90 and step.bias is None
    assert np.array_equal(step.weight, as_float32(stored(wide["weight"], "BF16"), "BF16").reshape(90, 64))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"activation_function": "torch.nn.modules.activation.ReLU"}, "ReLU"),
        ({"in_features": 65}, r"the shape \[90, 64\], not \[90, 65\]"),
        ({"bias": True}, "linear.bias is missing"),
        ({"out_features": 0}, "out_features"),
        ({"module_output_name": "other"}, "module_output_name"),
    ],
)
def test_a_step_that_does_not_fit_is_refused(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    with_sentence_files(tmp_path, {"pooling_mode_mean_tokens": True})
    with_dense_steps(tmp_path, (products()[0], "linear.Identity"))
    place = tmp_path / "2_Dense" / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **changes}))
    with pytest.raises(ModelError, match=words):
        read_sentence_files(tmp_path)


def test_files_that_are_missing_and_steps_in_another_order_are_refused(tmp_path: Path) -> None:
    with_sentence_files(tmp_path, {"pooling_mode_mean_tokens": True})
    wide, narrow = products()
    with_dense_steps(tmp_path, (narrow, "linear.Identity"), (wide, "linear.Identity"))
    with pytest.raises(CorruptModel, match="makes 40 numbers, and the next one reads 64"):
        read_sentence_files(tmp_path)
    listed = json.loads((tmp_path / "modules.json").read_text())
    (tmp_path / "modules.json").write_text(json.dumps([*listed[:2], listed[4], listed[2]]))
    with pytest.raises(UnsupportedModel, match="another order"):
        read_sentence_files(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    (tmp_path / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModel, match=r"has no model\.safetensors"):
        read_sentence_files(tmp_path)
