"""Tokenizers that write unknown characters as bytes, as GGUF keys: the file gives the original's tokens."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import mistral_common
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.quantize.folders import SMALL, small_folder
from tests.weights.test_vocabularies import MARKED, nasty_texts
from twostroke.quantize.gguf import merged_vocabulary, vocabulary
from twostroke.quantize.gguf.container import write_gguf
from twostroke.quantize.gguf.write import MIXES, write_folder
from twostroke.text.tokenizer_file import read_tokenizer
from twostroke.types.errors import UnsupportedModel
from twostroke.weights.gguf.container import GgufFile
from twostroke.weights.gguf.unfold import unfold
from twostroke.weights.gguf.vocabulary.token_list import TokenList
from twostroke.weights.gguf.vocabulary.tokenizer import as_json, tokenizer_json
from twostroke.weights.vocabularies.unfold import with_tokenizer

DATA = Path(mistral_common.__file__).parent / "data"
PREFIX = "tokenizer.ggml."
SPECIAL = ("<unk>", "<s>", "</s>", "<turn>")
PROSE = "the quick brown fox  can't see\n\n2024 things, it's 100% true. "
CORPUS = [PROSE, "def f(x):\n\treturn x  # naïve café 你好🙂 "] * 9


def keys_of(folder: Path, vocab_size: int) -> dict[str, Any]:
    return dict(vocabulary.vocabulary_keys(folder, {"bos_token_id": 1, "eos_token_id": 2}, vocab_size))


def read_again(keys: dict[str, Any], place: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a file with these keys, as this engine reads it."""
    write_gguf(place / "keys.gguf", {"general.architecture": "llama", **keys}, {})
    file = GgufFile.open(place / "keys.gguf")
    members = tokenizer_json(TokenList.read(file.values, "keys.gguf"))
    file.close()
    return tokenizers.Tokenizer.from_str(as_json(members))


def check_same(folder: Path, found: tokenizers.Tokenizer, *more: str) -> None:
    original = read_tokenizer(folder)
    for text in (*nasty_texts(), *more):
        for special in (False, True):
            ids = original.encode(text, add_special_tokens=special).ids
            assert found.encode(text, add_special_tokens=special).ids == ids, text
        assert found.decode(ids) == original.decode(ids), text


SIZE = 421
SPLITTING = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}


@cache
def trained() -> str:
    """A small tokenizer in the style of Gemma: spaces become U+2581, and a text is one piece."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    octets = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=[*SPECIAL, *octets], show_progress=False)
    made.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    made.train_from_iterator(CORPUS, trainer)
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])
    said = json.loads(made.to_str())
    said["added_tokens"] = [token for token in said["added_tokens"] if token["content"] in SPECIAL]
    said["model"]["vocab"]["▁▁"] = len(said["model"]["vocab"])
    said["model"]["merges"].insert(0, ["▁", "▁"])
    return json.dumps(said)


def folder_with(place: Path, **changes: Any) -> Path:
    """A folder of that tokenizer, with other members."""
    place.mkdir()
    (place / "tokenizer.json").write_text(json.dumps({**json.loads(trained()), **changes}))
    return place


def flagged(text: str, **flags: bool) -> list[dict[str, Any]]:
    """The added tokens, one of which has these flags."""
    return [{**token, **(flags if token["content"] == text else {})} for token in json.loads(trained())["added_tokens"]]


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.model*")))
def test_published_vocabularies_of_sentencepiece(name: str, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    shutil.copy(DATA / name, tmp_path / "m" / "tokenizer.model")
    folder = with_tokenizer(tmp_path / "m", tmp_path / "cache")
    size = read_tokenizer(folder).get_vocab_size()
    keys = keys_of(folder, size + 3)
    kinds = keys[PREFIX + "token_type"]
    assert keys[PREFIX + "model"] == "llama" and merged_vocabulary.WHOLE not in keys
    assert keys[PREFIX + "add_space_prefix"] is True and keys[PREFIX + "add_bos_token"] is True
    assert kinds.count(6) == 256 and kinds[:3] == [2, 3, 3] and kinds[-3:] == [5, 5, 5]
    assert len(keys[PREFIX + "scores"]) == len(keys[PREFIX + "tokens"]) == size + 3
    check_same(folder, read_again(keys, tmp_path), *MARKED)


def test_a_text_is_not_given_a_space_where_the_tokenizer_gives_none(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m")
    keys = keys_of(folder, SIZE)
    assert keys.get(PREFIX + "add_space_prefix", False) is False and merged_vocabulary.WHOLE not in keys
    check_same(folder, read_again(keys, tmp_path), "<s>a<turn> b</s>")


def test_merges_that_no_score_says_are_listed(tmp_path: Path) -> None:
    """`abc` is merged only from `a` and `bc`. By scores, `ab` and `c`, which come first, would become it as well."""
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "a", "b", "c", "ab", "bc", "abc"]
    model = {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True}
    model |= {"vocab": {piece: index for index, piece in enumerate(pieces)}}
    model |= {"merges": [["a", "b"], ["b", "c"], ["a", "bc"]]}
    folder = folder_with(tmp_path / "m", model=model, added_tokens=[], post_processor=None)
    keys = keys_of(folder, len(pieces))
    assert keys[PREFIX + "model"] == "gemma4" and keys[PREFIX + "merges"] == ["a b", "b c", "a bc"]
    found = read_again(keys, tmp_path)
    assert found.encode("abc").tokens == ["ab", "c"]
    check_same(folder, found)


@pytest.mark.parametrize("flags", [{"rstrip": True}, {"lstrip": True}, {"single_word": True}])
def test_special_tokens_that_take_blanks_keep_the_original_in_the_file(flags: dict[str, bool], tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m", added_tokens=flagged("<turn>", **flags))
    keys = keys_of(folder, SIZE)
    assert json.loads(keys[merged_vocabulary.WHOLE])["added_tokens"] == flagged("<turn>", **flags)
    check_same(folder, read_again(keys, tmp_path), "a <turn> \n b<turn>c", "<s> <turn>  x")


def test_a_space_before_the_first_piece_alone_keeps_the_original_in_the_file(tmp_path: Path) -> None:
    """llama.cpp puts a space after each special token, as older tokenizers do."""
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    folder = folder_with(tmp_path / "m", normalizer=None, pre_tokenizer=space, decoder=space)
    keys = keys_of(folder, SIZE)
    assert keys.get(PREFIX + "add_space_prefix", True) and merged_vocabulary.WHOLE in keys
    check_same(folder, read_again(keys, tmp_path), "a<turn>b <turn> c")


def test_tokens_without_a_row_are_left_out(tmp_path: Path) -> None:
    """The tokenizer of Gemma 3 1B has a token for images, and its model has no row for it."""
    image = {**flagged("<s>")[1], "id": SIZE, "content": "<image>"}
    folder = folder_with(tmp_path / "m", added_tokens=[*flagged("<s>"), image])
    keys = keys_of(folder, SIZE)
    assert len(keys[PREFIX + "tokens"]) == SIZE and "<image>" not in keys[PREFIX + "tokens"]
    found = read_again({name: value for name, value in keys.items() if name != merged_vocabulary.WHOLE}, tmp_path)
    assert found.token_to_id("<image>") is None
    assert found.encode("the fox").ids == read_tokenizer(folder).encode("the fox").ids


def test_added_runs_of_spaces_stay_pieces_of_text(tmp_path: Path) -> None:
    """Gemma adds runs of U+2581, to which texts lead by merges. llama.cpp writes a token of another kind as it is."""
    run = {**flagged("<s>")[1], "id": json.loads(trained())["model"]["vocab"]["▁▁"], "content": "▁▁", "special": False}
    folder = folder_with(tmp_path / "m", added_tokens=[*flagged("<s>"), run])
    keys = keys_of(folder, SIZE)
    assert keys[PREFIX + "token_type"][run["id"]] == 1
    check_same(folder, read_again(keys, tmp_path), "a  b    c ")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"normalizer": {"type": "NFKC"}}, "NFKC"),
        ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}}, "Replace"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "Whitespace"),
        ({"pre_tokenizer": SPLITTING}, "tokens of a text"),
    ],
)
def test_what_keys_do_not_say_is_refused_by_name(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    model = json.loads(trained())["model"]
    split = {"model": {**model, "vocab": {**model["vocab"], "e▁f": SIZE}, "merges": [*model["merges"], ["e", "▁f"]]}}
    with pytest.raises(UnsupportedModel, match="tokenizer") as caught:
        keys_of(folder_with(tmp_path / "m", **split, **changes), SIZE + 1)
    assert words in caught.value.why


def test_a_file_is_written_whose_tokenizer_is_larger_than_other_json_files_may_be(tmp_path: Path) -> None:
    """Gemma's tokenizer has 33 MB, and other JSON files are read up to 16 MB."""
    folder = small_folder(tmp_path / "small")
    (folder / "tokenizer.json").write_text(trained() + " " * (17 << 20))
    path = write_folder(folder, tmp_path / "out", MIXES["Q8_0"], "small", lambda done, total, what: None)
    reader = gguf.GGUFReader(path)
    assert len(reader.fields[PREFIX + "tokens"].data) == SMALL["vocab_size"]
    texts = [read_tokenizer(each).encode("the quick fox").ids for each in (folder, unfold(path, None))]
    assert texts[0] == texts[1] and len(texts[0]) < len("the quick fox")
