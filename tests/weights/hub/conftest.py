"""A hub on 127.0.0.1 with a model and GGUF files, and what pulls from it."""

from __future__ import annotations

import json

import pytest

from tests.weights.checkpoints import CONFIG, random_tensors, write
from tests.weights.fake_hub import FakeHub, Repo, serve
from tests.weights.hub.names import MODEL, NEW, OLD
from twostroke.weights.hub.hub import resolve_model


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, bytes]:
    folder = write(tmp_path_factory.mktemp("repo"), CONFIG, random_tensors(CONFIG), shards=2)
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    return found | {
        "tokenizer.json": b"{}",
        "generation_config.json": b"{ }",
        "chat_template.jinja": b"x",
        "additional_chat_templates/tools.jinja": b"y",
        "modules.json": b"[ ]",
        "config_sentence_transformers.json": b"{1}",
        "1_Pooling/config.json": b"{2}",
        "2_Dense/config.json": b"{3}",
        "2_Dense/model.safetensors": b"4",
        "README.md": b"no",
        "pytorch_model.bin": b"no",
        "modeling_evil.py": b"no",
        "consolidated.safetensors": b"no",
        "original/model.safetensors": b"no",
        "onnx/config.json": b"no",
        "training_args.pt": b"no",
    }


GGUFS = {
    "Tiny-Q8_0.gguf": b"GGUF8",
    "Tiny.Q4_K_M.gguf": b"GGUFK",
    "Q4_0/tiny-q4_0-00001-of-00002.gguf": b"GGUF1",
    "Q4_0/tiny-q4_0-00002-of-00002.gguf": b"GGUF2",
    "mmproj-F16.gguf": b"",
    "README.md": b"",
}
MEASURED = {"M-UD-Q4_K_M.gguf": b"GGUFM", "M-UD-Q5_K_XL.gguf": b"GGUFX", "M-Q8_0.gguf": b"GGUF8"}


@pytest.fixture
def hub(files, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    old = {**files, "config.json": json.dumps({**CONFIG, "rms_norm_eps": 1e-6}).encode()}
    repos = {
        MODEL: Repo({NEW: files, OLD: old}, {"main": NEW, "v1": OLD}),
        "acme/gated": Repo({NEW: files}, {"main": NEW}, gated=True),
        "acme/adapter": Repo({NEW: {"adapter.bin": b"", "README.md": b""}}, {"main": NEW}),
        "acme/gguf": Repo({NEW: {"model.gguf": b"GGUF", "README.md": b""}}, {"main": NEW}),
        "acme/measured": Repo({NEW: MEASURED}, {"main": NEW}),
        "acme/ggufs": Repo({NEW: GGUFS}, {"main": NEW}),
    }
    with serve(repos) as running:
        yield running


@pytest.fixture
def pull(hub: FakeHub, tmp_path):
    def resolve(name: str = MODEL, **options):
        return resolve_model(name, cache_dir=tmp_path / "cache", endpoint=hub.url, **options)

    return resolve
