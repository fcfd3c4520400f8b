"""The engine with heads on the model's hidden states has the same bits as without. Heads that do not fit are
refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.speculate.test_real_engine import PARAMS, QUESTIONS, AllOfThem, facts, outputs
from tests.weights.checkpoints import read_tensors, save
from twostroke import LLM
from twostroke.assets import spark_eagle_path, spark_medusa_path
from twostroke.types.errors import ConfigError
from twostroke.types.output import Prompt

SMALL = {"context": 256, "kv_memory": "830KB", "kv_format": "bf16", "max_sequences": 8, "threads": 2}
WAYS = ("medusa", "eagle")
FOLDERS = {"medusa": spark_medusa_path, "eagle": spark_eagle_path}
FILES = {"medusa": "medusa_lm_head.safetensors", "eagle": "model.safetensors"}


@pytest.fixture(scope="module", params=WAYS)
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    """There are pages for about two of the answers, so that sequences are put back."""
    with LLM("spark", speculate=request.param, **SMALL) as made:
        made._built.guesser._limiter = AllOfThem(made._built.guesser._limiter.times)
        yield made


@pytest.mark.parametrize("kind", PARAMS)
def test_heads_give_the_same_bits(llm: LLM, kind: str) -> None:
    params, totals = PARAMS[kind], llm._built.guesser.totals
    plain = outputs(llm, params, "off")
    before = totals.guessed, totals.accepted
    assert facts(outputs(llm, params, str(llm._built.resolved["speculate"]))) == facts(plain)
    assert totals.guessed > before[0]
    if kind in ("greedy", "sampled", "loops"):
        assert totals.accepted > before[1]
    assert llm._built.cache.pages_used == 0


def test_streams_that_are_put_back_and_given_up_change_nothing(llm: LLM) -> None:
    params = replace(PARAMS["loops"], max_tokens=120)
    ways = (str(llm._built.resolved["speculate"]), "off", "suffix")
    prompts = [Prompt(tuple(llm.chat_tokens(q)), params, speculate=way) for q in QUESTIONS for way in ways]
    alone = {q: outputs(llm, params, "off", [q])[0].completions[0].token_ids for q in QUESTIONS}
    stream = llm.engine.stream(prompts[:4])
    for count, _ in enumerate(stream):
        if count > 30:
            break
    stream.close()
    together = llm.engine.generate(prompts)
    assert [each.completions[0].token_ids for each in together] == [alone[q] for q in QUESTIONS for _ in ways]
    assert sum(each.completions[0].num_preemptions for each in together) > 0
    assert llm._built.cache.pages_used == 0
    llm._built.cache.check()


def test_heads_that_fail_are_left_alone(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    way = str(llm._built.resolved["speculate"])
    plain = facts(outputs(llm, PARAMS["greedy"], "off"))
    found = llm._built.guesser._ways[way][0]
    proposer, broken = (found, "_heads") if way == "medusa" else (found._writer, "_executor")
    monkeypatch.setattr(proposer, "_faults", 0)
    monkeypatch.setattr(proposer, "_report", lambda error: None)
    monkeypatch.setattr(proposer, broken, None)
    assert facts(outputs(llm, PARAMS["greedy"], way)) == plain
    assert proposer._faults == 3


def changed(way: str, folder: Path, config: dict[str, object], tensors: dict[str, np.ndarray | None]) -> str:
    """A copy of the shipped heads, with other fields and tensors (None: without it). Returns the option's value."""
    shutil.copytree(FOLDERS[way](), folder)
    read = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**read, **config}))
    if tensors:
        file = folder / FILES[way]
        kept = {name: array for name, array in read_tensors(file).items() if tensors.get(name, "") is not None}
        save(file, {**kept, **{name: array for name, array in tensors.items() if array is not None}}, "BF16")
    return f"{way}:{folder}"


@pytest.mark.parametrize(
    ("way", "config", "tensors", "words"),
    [
        (
            "medusa",
            {},
            {"0.0.linear.weight": np.zeros((128, 128))},
            r"0\.0\.linear\.weight has the shape \[128, 128\]",
        ),
        ("medusa", {}, {"1.0.linear.bias": None}, r"1\.0\.linear\.bias is missing.*256 numbers and 4,096 tokens"),
        ("medusa", {"original_lm_head": False}, {}, r"tensor 0\.\d\.weight is missing"),
        ("medusa", {"medusa_num_heads": 0}, {}, "medusa_num_heads"),
        ("medusa", {}, {"0.0.linear.weight": np.full((256, 256), np.nan)}, r"0\.0\.linear\.weight .*NaN"),
        ("eagle", {"hidden_size": 128}, {}, "hidden_size.*256 numbers"),
        ("eagle", {"vocab_size": 32000}, {}, "vocab_size.*4,096 tokens"),
        ("eagle", {"num_hidden_layers": 2}, {}, "one layer"),
        (
            "eagle",
            {},
            {"fc.weight": np.zeros((256, 256))},
            r"fc\.weight has the shape \[256, 256\], expected \[256, 512\]",
        ),
        ("eagle", {}, {"layers.0.mlp.up_proj.weight": None}, r"layers\.0\.mlp\.up_proj\.weight is missing"),
    ],
)
def test_heads_that_do_not_fit_are_refused_by_the_tensor(
    tmp_path: Path, way: str, config: dict[str, object], tensors: dict[str, np.ndarray | None], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        LLM("spark", speculate=changed(way, tmp_path / "heads", config, tensors))


def test_broken_missing_and_pickled_heads_are_refused(tmp_path: Path) -> None:
    option = changed("medusa", tmp_path / "cut", {}, {})
    file = tmp_path / "cut" / FILES["medusa"]
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ConfigError, match=r"medusa:.*medusa_lm_head\.safetensors"):
        LLM("spark", speculate=option)
    file.rename(tmp_path / "cut" / "medusa_lm_head.pt")
    with pytest.raises(ConfigError, match=r"holds medusa_lm_head\.pt.*run code.*save_file"):
        LLM("spark", speculate=option)
    with pytest.raises(ConfigError, match="medusa:"):
        LLM("spark", speculate=f"medusa:{tmp_path / 'nowhere'}")
