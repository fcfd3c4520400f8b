"""Models from a path and from a hub: a server on 127.0.0.1, with the real huggingface_hub."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tests.weights.checkpoints import CONFIG, random_tensors, write
from tests.weights.hub.names import MODEL, NEW, OLD, SHARD, first_bytes
from twostroke.runner.folder import load_folder
from twostroke.types.errors import ConfigError, ModelError, ModelNotFound
from twostroke.types.spec.formats import F32
from twostroke.weights.hub import resume as hub_resume
from twostroke.weights.hub.hub import resolve_model


def test_downloads_what_is_wanted_and_nothing_else(pull, files, hub):
    seen: list[tuple[int, int, str]] = []
    folder = pull(progress=lambda *step: seen.append(step))
    got = {str(p.relative_to(folder.path)) for p in folder.path.rglob("*") if p.is_file()}
    refused = {"README.md", "pytorch_model.bin", "modeling_evil.py", "consolidated.safetensors",
               "original/model.safetensors", "onnx/config.json", "training_args.pt"}  # fmt: skip
    assert got == set(files) - refused
    assert not any(name in path for name in refused for _, path in hub.requests)
    assert (folder.source, folder.revision) == (MODEL, NEW) and folder.path.name == NEW
    assert load_folder(folder.path, F32)[0].vocab_size == CONFIG["vocab_size"]
    total = sum(len(files[name]) for name in got)
    assert seen[-1] == (total, total, MODEL)
    assert [step[0] for step in seen] == sorted(step[0] for step in seen)


def test_second_time_asks_for_no_file_and_offline_asks_for_nothing(pull, hub):
    first = pull()
    hub.requests.clear()
    assert pull() == first
    assert not [path for _, path in hub.requests if "/resolve/" in path]
    hub.requests.clear()
    assert pull(offline=True) == first
    assert pull(offline=True, revision=NEW) == first
    assert not hub.requests


def test_a_pinned_revision_by_tag_and_by_commit(pull):
    by_tag, by_commit, newest = pull(revision="v1"), pull(revision=OLD), pull()
    assert by_tag == by_commit and by_tag.revision == OLD
    assert newest.revision == NEW
    assert json.loads((by_tag.path / "config.json").read_bytes())["rms_norm_eps"] == 1e-6


def test_a_moved_branch_brings_the_new_commit(pull, hub, files):
    assert pull().revision == NEW
    moved = "c" * 40
    hub.repos[MODEL].commits[moved] = files
    hub.repos[MODEL].refs["main"] = moved
    assert pull().revision == moved


def test_an_interrupted_download_goes_on_where_it_stopped(pull, hub, files):
    hub.cut_after_bytes[SHARD] = 1000
    hub.cuts_left = 7
    hub.refuse_after_cuts = True
    with pytest.raises(ModelError, match="interrupted") as caught:
        pull()
    assert "goes on where it stopped" in caught.value.fix
    with pytest.raises(ModelNotFound, match="in part|not on this machine"):
        pull(offline=True)
    assert first_bytes(hub, SHARD)[:6] == [1000, 2000, 3000, 4000, 5000, 6000]
    hub.cut_after_bytes.clear()
    hub.ranges.clear()
    seen: list[tuple[int, int, str]] = []
    folder = pull(progress=lambda *step: seen.append(step))
    assert (folder.path / SHARD).read_bytes() == files[SHARD]
    assert first_bytes(hub, SHARD) == [7000]
    assert seen[-1][0] == seen[-1][1]
    assert not list(folder.path.parents[1].rglob("*partial"))


def test_a_server_that_ignores_ranges_sends_everything_again(pull, hub, files):
    hub.cut_after_bytes[SHARD] = 5000
    hub.cuts_left = 1
    hub.ignores_ranges = True
    seen: list[tuple[int, int, str]] = []
    folder = pull(progress=lambda *step: seen.append(step))
    assert (folder.path / SHARD).read_bytes() == files[SHARD]
    assert seen[-1][0] == seen[-1][1]


def test_a_damaged_partial_file_is_thrown_away(pull, hub, files, tmp_path):
    blobs = tmp_path / "cache" / "models--acme--tiny" / "blobs"
    blobs.mkdir(parents=True)
    partial = blobs / (hashlib.sha256(files[SHARD]).hexdigest() + hub_resume.PARTIAL_SUFFIX)
    for content, words in ((b"x" * 1000, "SHA-256"), (files[SHARD] + b"x", "too long")):
        partial.write_bytes(content)
        with pytest.raises(ModelError, match=f"damaged.*{words}"):
            pull()
        assert not partial.exists()
    assert (pull().path / SHARD).read_bytes() == files[SHARD]


def test_a_server_that_lies_about_the_length(pull, hub):
    hub.announced_bytes[SHARD] = 500
    with pytest.raises(ModelError, match="More bytes came"):
        pull()


def test_a_file_that_another_process_fetches_is_left_to_huggingface_hub(pull, files, tmp_path):
    blobs = tmp_path / "cache" / "models--acme--tiny" / "blobs"
    blobs.mkdir(parents=True)
    partial = blobs / (hashlib.sha256(files[SHARD]).hexdigest() + hub_resume.PARTIAL_SUFFIX)
    with partial.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert (pull().path / SHARD).read_bytes() == files[SHARD]
        assert partial.stat().st_size == 0


def test_no_room_is_said_before_the_download(pull, hub, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(0, 0, 1000))
    with pytest.raises(ModelError, match="no room.*GB are to be downloaded"):
        pull()
    assert not [path for command, path in hub.requests if command == "GET" and path.endswith(".safetensors")]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("acme/none", {}, "no model acme/none on the hub, or it is private"),
        (MODEL, {"revision": "v9"}, "no revision v9"),
        (MODEL, {"revision": "d" * 40}, "no revision dddd"),
        ("acme/gated", {}, "gated.*HF_TOKEN"),
        ("acme/adapter", {}, "no config.json.*no GGUF"),
        ("acme/adapter:Q4_0", {}, "no GGUF file"),
        ("acme/ggufs:Q5_K_M", {}, "no Q5_K_M.*Q4_0 .*Q4_K_M .*Q8_0 "),
        ("acme/ggufs:Q4", {}, "no Q4"),
        ("acme/none:Q4_0", {}, "no model acme/none on the hub"),
        ("acme/ggufs:Q8_0", {"offline": True}, "not on this machine.*offline"),
        (MODEL, {"offline": True}, "not on this machine.*offline"),
        ("acme/ti ny", {}, "no hub id"),
        ("acme/../x", {}, "no folder"),
        ("acme/..", {}, "no hub id|no folder|holds no config"),
    ],
)
def test_what_is_not_there(pull, name, options, words):
    with pytest.raises(ModelNotFound, match=words) as caught:
        pull(name, **options)
    assert caught.value.why and caught.value.fix


def test_a_misspelt_name_is_compared_with_what_is_on_this_machine(pull):
    pull()
    with pytest.raises(ModelNotFound, match="Did you mean acme/tiny"):
        pull("acme/tinny")


def test_gguf_files_by_quantization_and_by_name(pull, hub):
    for name in ("acme/ggufs:Q8_0", "acme/ggufs:q8_0", "acme/ggufs:Tiny-Q8_0.gguf", "acme/ggufs:Tiny-Q8_0"):
        found = pull(name)
        assert found.path.name == "Tiny-Q8_0.gguf" and found.path.read_bytes() == b"GGUF8"
        assert (found.source, found.revision) == (name, NEW)
    split = pull("acme/ggufs:Q4_0").path
    assert split.read_bytes() == b"GGUF1" and split.name == "tiny-q4_0-00001-of-00002.gguf"
    assert split.with_name("tiny-q4_0-00002-of-00002.gguf").read_bytes() == b"GGUF2"
    fetched = {path.rpartition("/")[2] for _, path in hub.requests if "/resolve/" in path}
    assert fetched == {"Tiny-Q8_0.gguf", "tiny-q4_0-00001-of-00002.gguf", "tiny-q4_0-00002-of-00002.gguf"}
    assert pull("acme/gguf").path.name == "model.gguf"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("acme/measured:Q4_K_M", "M-UD-Q4_K_M.gguf"),  # the publisher's own name of the same bits
        ("acme/measured:q5_k_m", "M-UD-Q5_K_XL.gguf"),
        ("acme/measured:UD-Q4_K_M", "M-UD-Q4_K_M.gguf"),
        ("acme/measured", "M-UD-Q4_K_M.gguf"),
        ("acme/measured:latest", "M-UD-Q4_K_M.gguf"),
        ("acme/ggufs", "Tiny.Q4_K_M.gguf"),
        (f"hf.co/acme/measured:Q8_0@{NEW}", "M-Q8_0.gguf"),
        ("https://huggingface.co/acme/measured/blob/main/M-Q8_0.gguf", "M-Q8_0.gguf"),
    ],
)
def test_which_file_of_a_repository_is_meant(pull, name, file):
    assert pull(name).path.name == file


def test_another_quantization_is_never_taken_for_one_that_is_not_there(pull):
    for name in ("acme/measured:Q6_K", "acme/measured:UD-Q8_0", "acme/measured:Q4_0"):
        with pytest.raises(ModelNotFound, match="has no"):
            pull(name)


def test_gguf_files_that_are_here_need_no_hub(pull, hub):
    first = pull("acme/ggufs:Q8_0")
    hub.requests.clear()
    assert pull("acme/ggufs:Q8_0", offline=True) == first and not hub.requests
    with pytest.raises(ModelNotFound, match=r"no Q4_0.*Q8_0 \("):
        pull("acme/ggufs:Q4_0", offline=True)
    hub.broken = True
    assert pull("acme/ggufs:Q8_0") == first


def test_local_gguf_files(tmp_path):
    (tmp_path / "one").mkdir()
    file = tmp_path / "one" / "tiny-Q4_0.gguf"
    for name in (file.name, "mmproj-tiny.gguf"):
        (tmp_path / "one" / name).write_bytes(b"GGUF")
    for name in (file, tmp_path / "one"):
        assert resolve_model(str(name)).path == file
    with pytest.raises(ConfigError, match="--revision main"):
        resolve_model(str(file), revision="main")
    with pytest.raises(ModelNotFound, match=r"There is no file .*tiny-Q4_1.gguf"):
        resolve_model(str(tmp_path / "one" / "tiny-Q4_1.gguf"))
    with pytest.raises(ModelNotFound) as caught:
        resolve_model(str(tmp_path / "none" / "tiny-Q4_0.gguf"))
    assert "does not exist" in (caught.value.why or "")
    (tmp_path / "one" / "tiny-Q8_0.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFound, match=r"2 models.*Q4_0 \(tiny-Q4_0.gguf\), Q8_0"):
        resolve_model(str(tmp_path / "one"))


def test_local_folders(tmp_path, monkeypatch):
    model = write(tmp_path / "models" / "tiny", CONFIG, random_tensors(CONFIG))
    folder = resolve_model(str(model))
    assert (folder.path, folder.source, folder.revision) == (model, str(model), None)
    monkeypatch.chdir(tmp_path)
    assert resolve_model("models/tiny").path == model
    with pytest.raises(ConfigError, match="--revision main"):
        resolve_model(str(model), revision="main")
    with pytest.raises(ModelNotFound, match=r"Did you mean .*models/tiny"):
        resolve_model(str(tmp_path / "models" / "tinny"))
    with pytest.raises(ModelNotFound, match=r"Did you mean .*models/tiny"):
        resolve_model(str(tmp_path / "models"))
    with pytest.raises(ModelNotFound, match="is a file"):
        resolve_model(str(model / "config.json"))
    for name in ("", "tiny", "/none", "./none", "~/none-such", "a/b/c"):
        with pytest.raises(ModelNotFound):
            resolve_model(name)


def test_huggingface_hub_is_not_imported_for_local_folders(tmp_path):
    model = write(tmp_path, CONFIG, random_tensors(CONFIG))
    code = (
        "import sys; from twostroke.weights.hub.hub import resolve_model; resolve_model(sys.argv[1]);"
        "assert not {'huggingface_hub', 'tqdm', 'torch', 'safetensors'} & set(sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code, str(model)], check=True, cwd=root)
