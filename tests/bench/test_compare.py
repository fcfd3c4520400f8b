"""bench compare with engines that are scripts: turns, medians, ratios, faults, missing engines, the picture."""

from __future__ import annotations

import itertools
import json
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from twostroke.assembly.settings.env import process_environment
from twostroke.backends.cpu.library import best_level, load_library
from twostroke.backends.cpu.limits import LimitMeter, Limits
from twostroke.cli.bench.compare import compare
from twostroke.lab.bench import cases
from twostroke.lab.bench.cases import Bound
from twostroke.lab.bench.checkpoints import SHAPES, write_checkpoint
from twostroke.lab.bench.compare import Column, Comparison, Contestant, Row, Setup, ratio_to_best, rows
from twostroke.lab.bench.comparison_text import text
from twostroke.lab.bench.evict import evict
from twostroke.lab.bench.figure import figure
from twostroke.lab.bench.peers import peer as peer_room
from twostroke.lab.bench.peers.environment import install, python_of
from twostroke.lab.bench.peers.peer import OURS, PEERS, Peer, find_peer
from twostroke.lab.bench.peers.session import Missing, PeerFault, Session
from twostroke.lab.bench.run_compare import Asked, Result, run
from twostroke.models.common.registry import read_model
from twostroke.ops.quant.formats import INT8
from twostroke.types.errors import ConfigError, ModelError
from twostroke.types.spec.formats import F32, KVKind

LIMITS = Limits(2, "avx512", 30e9, 480e9, 1900e9)
CASES = (cases.prefill(128), cases.decode(2, 64), cases.CACHED)
FAKE = """
import os, sys
sys.path.insert(0, {drivers!r})
from protocol import random_ids, serve, steady_rate
class Driver:
    rates = [0.0, 0.0, 5.0, 1.0, 3.0, 2.0, 4.0]
    def load(self, model, weights, threads, context, sequences, kv="bf16"):
        print("noise on standard output")
        self.kv = kv
        return 0.1
    def files(self, model, weights):
        return [os.path.dirname(__file__), "/nonexistent"]
    def prefill(self, tokens):
        assert len(random_ids(tokens, 3)) == tokens and random_ids(4, 3) == random_ids(4, 3)
        return {prefill}
    def decode(self, batch, context, new_tokens):
        {decode}
serve(Driver())
"""


def fake(folder: Path, name: str, prefill: float | str, decode: str) -> Contestant:
    script = folder / f"{name}_driver.py"
    script.write_text(FAKE.format(drivers=str(peer_room.DRIVERS), prefill=prefill, decode=decode))
    made = Peer(name, name.title(), str(script), ())
    return Contestant(made, Path(sys.executable), "int8")


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup("model", 2, 100, 4, {}, tmp_path)


def test_turns_medians_and_faults(tmp_path: Path, setup: Setup) -> None:
    ours = fake(tmp_path, OURS.name, 300.0, "return steady_rate([(0, 1), (1, 1), (2, 1), (3, 1)])")
    other = fake(tmp_path, "other", 200.0, "raise ValueError('no streams')")
    dead = fake(tmp_path, "dead", 1.0, "os._exit(3)")
    said: list[str] = []
    measured = iter([replace(LIMITS, read_bytes_per_s=1e9 * rate) for rate in range(20, 40)])
    comparison = Comparison(setup, CASES, time.perf_counter, said.append, lambda: next(measured))
    *_, columns = comparison.run([ours, other, dead], 2)
    assert [line for line in said if line.startswith("round")][:3] == [
        "round 1 of 2: twostroke int8",
        "round 1 of 2: other int8",
        "round 1 of 2: dead int8",
    ]
    assert columns[0].values["prefill 128"] == [300.0, 300.0] and columns[0].median(CASES[1]) == 1.0
    assert columns[0].faults == {cases.CACHED.name: "not offered"}
    assert "no streams" in columns[1].faults["all"] or "failed at decode" in columns[1].faults["all"]
    assert "ended during decode" in columns[2].faults["all"]
    assert columns[0].values["peak memory"][0] > 1e6
    assert len(columns[0].values[cases.START.name]) == len(columns[0].values[cases.COLD_START.name]) == 2
    assert [limits.read_bytes_per_s for limits in columns[0].limits[CASES[1].name]] == [23e9, 28e9]
    assert columns[1].limits == {}, "a peer's figures are beside ours, not beside the limit"
    table = rows(columns, CASES, lambda case, contestant, limits: Bound(limits.read_bytes_per_s / 1e7, "reading"))
    assert table[1].share_of_limit == 1.0 / 2550
    first = table[0]
    assert first.times_best == 1.5 and first.values == {"twostroke": 300.0, "other": 200.0, "dead": 1.0}
    printed = text("model", LIMITS, table, columns, 2)
    assert "30.0 GB/s" in printed and "| prefill 128 | 300 | 200 | 1.0 |" in printed and "not offered" in printed


def test_kv_in_int8_stands_beside_the_same_figures_of_the_others(tmp_path: Path, setup: Setup) -> None:
    many = cases.decode(32, 512)
    asked = (cases.prefill(128), many)
    ours = fake(tmp_path, OURS.name, 300.0, "return 9.0 if self.kv == 'int8' else 6.0")
    other = fake(tmp_path, "other", 200.0, "return 3.0")
    comparison = Comparison(setup, asked, time.perf_counter, lambda line: None, lambda: LIMITS)
    narrow = replace(ours, kv=KVKind.INT8)
    told = []
    for columns in comparison.run([ours, narrow, other], 1):
        so_far = rows(columns, asked, lambda case, contestant, limits: Bound(18.0, contestant.kv.name))
        told.append((so_far[1].values, figure("m", so_far)[:4], text("m", LIMITS, so_far, columns, 1)[:2]))
    assert told[0] == ({OURS.name: 6.0, "other": None}, "<svg", "m,") and told[2][0] == {OURS.name: 6.0, "other": 3.0}
    assert [column.turns for column in columns] == [1, 1, 1]
    assert set(columns[1].values) == {many.name, cases.START.name, cases.MEMORY.name}
    table = rows(columns, asked, lambda case, contestant, limits: Bound(18.0, contestant.kv.name))
    found = [row for row in table if row.case.name == "decode 32 x 512, K and V int8"]
    assert [row.values for row in found] == [{OURS.name: 9.0, "other": 3.0}]
    assert found[0].times_best == 3.0 and found[0].bound == Bound(18.0, "INT8") and table[1].times_best == 2.0
    assert ("| decode 32 x 512, K and V int8 | 9.0 | 3.0 | 50% (INT8) | 3.00 |") in text("m", LIMITS, table, columns, 1)


def test_a_short_case_is_asked_several_times_in_a_turn(tmp_path: Path, setup: Setup) -> None:
    ours = fake(tmp_path, OURS.name, "self.rates.pop(0)", "return 1.0")  # two rates for warming up come first
    ((column,),) = Comparison(setup, CASES[:1], time.perf_counter, lambda line: None, lambda: LIMITS).run([ours], 1)
    assert column.values["prefill 128"] == [3.0]


def test_ratios_know_which_way_is_better() -> None:
    assert ratio_to_best(cases.prefill(1), 300.0, [100.0, 200.0]) == 1.5
    assert ratio_to_best(cases.CACHED, 0.1, [0.4, 0.2]) == 2.0
    assert ratio_to_best(cases.CACHED, 0.1, []) is None


def test_the_limit_of_a_case_is_the_roofline() -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 512,
        "vocab_size": 1024,
        "tie_word_embeddings": True,
    }
    spec = read_model(config)
    layers = 2 * (256 * (256 + 2 * 128) + 256 * 256 + 3 * 256 * 512)
    prefill = cases.bound(cases.prefill(100), spec, INT8, KVKind.BF16, LIMITS)
    assert prefill and prefill.tokens_per_s == pytest.approx(100 * 1900e9 / (2 * (100 * layers + 1024 * 256)), rel=0.01)
    one = cases.bound(cases.decode(1, 100), spec, INT8, KVKind.BF16, LIMITS)
    weights = (layers + 1024 * 256) * (8 + 16 / 256) / 8
    kv = (100 + 32) * 2 * 2 * 2 * 64 * 2
    assert one and one.tokens_per_s == pytest.approx(30e9 / (weights + kv), rel=0.01) and "reading" in one.words
    assert cases.bound(cases.CACHED, spec, INT8, KVKind.BF16, LIMITS) is None
    exact = cases.bound(cases.prefill(100), spec, F32, KVKind.F32, LIMITS)
    assert exact and "float32" in exact.words and exact.tokens_per_s < prefill.tokens_per_s


@pytest.mark.daily
@pytest.mark.slow
def test_a_missing_peer_is_a_clear_line(tmp_path: Path) -> None:
    assert python_of(tmp_path, PEERS["llama_cpp"]) is None
    with pytest.raises(ConfigError, match="No peer"):
        find_peer("lama")
    broken = Peer("broken", "Broken", "x.py", ("/nonexistent/package",))
    with pytest.raises(ConfigError, match="could not be installed"):
        install(tmp_path, broken, {}, lambda line: None)
    assert python_of(tmp_path, broken) is None


def test_an_engine_that_cannot_says_why(tmp_path: Path, setup: Setup) -> None:
    script = tmp_path / "unable.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(peer_room.DRIVERS)!r})\n"
        "from protocol import Unable, serve\n"
        "class Driver:\n"
        "    def load(self, **_):\n"
        "        raise Unable('it has no int8')\n"
        "serve(Driver())\n"
    )
    unable = Contestant(Peer("unable", "Unable", str(script), ()), Path(sys.executable), "int8")
    ((column,),) = Comparison(setup, CASES, time.perf_counter, lambda line: None, lambda: LIMITS).run([unable], 1)
    assert "it has no int8" in column.faults["all"] and column.values == {}
    assert column.faults[cases.COLD_START.name] == "not offered"


def test_evicted_files_keep_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "weights").write_bytes(b"abc" * 5000)
    evict([str(tmp_path), str(tmp_path / "missing")])
    assert (tmp_path / "inner" / "weights").read_bytes() == b"abc" * 5000


def test_a_session_names_what_is_not_there(tmp_path: Path) -> None:
    contestant = fake(tmp_path, "some", 1.0, "return 2.0")
    with Session(contestant.peer, contestant.python, {}, tmp_path / "log") as session:
        with pytest.raises(Missing):
            session.ask("cached", tokens=3)
        assert session.ask("decode", batch=1, context=1, new_tokens=1) == 2.0
        with pytest.raises(PeerFault, match="failed at decode"):
            session.ask("decode", wrong=1)
    session.close()


def test_the_picture_is_well_formed() -> None:
    bound = cases.Bound(400.0, "reading")
    found = [
        Row(cases.prefill(128), "int8", {"twostroke": 300.0, "a<b": 200.0, "none": None}, bound),
        Row(cases.CACHED, "int8", {"twostroke": 0.1, "a<b": None}, None),
    ]
    tree = ElementTree.fromstring(figure("title & more", found))
    assert tree.tag.endswith("svg") and len(tree.findall(".//{*}rect")) == 1 + 3 + 2
    assert json.dumps(found[0].as_json())


def test_the_limits_of_this_machine_are_positive() -> None:
    meter = LimitMeter(1, time.perf_counter, np.ones(1 << 24, np.uint8))
    limits = meter.measure(rounds=1)
    meter.close()
    meter.close()
    assert min(limits.read_bytes_per_s, limits.f32_flops_per_s, limits.int8_ops_per_s) > 1e6
    assert "GB/s" in limits.words() and limits.as_json()["threads"] == 1


class ScriptedLimits:
    """Takes the place of the native library. Both threads lie on one core at first, and one window in four is
    undisturbed."""

    def __init__(self, now_s: list[float]) -> None:
        self.now_s, self.rates = now_s, 0
        self.spreads = [1, 2, 1, 1, 2, 2, 2]
        self.windows = itertools.cycle([0.05, 0.1, 0.025, 0.05])

    def ts_limit_spread(self, _context: object) -> int:
        assert self.rates == 0, "spread first, then measure"
        return self.spreads.pop(0)

    def ts_limit_read(self, _context: object, _data: int, num_bytes: int) -> int:
        self.now_s[0] += 0.01
        return num_bytes

    def ts_limit_rate(self, _context: object, _kind: int, rounds: int) -> int:
        assert self.spreads == [], "no rate before every thread had a core of its own, three times in a row"
        self.rates += 1
        self.now_s[0] += next(self.windows)
        return rounds

    def ts_context_destroy(self, _context: object) -> None:
        pass


def test_limits_are_measured_when_each_thread_has_a_core_and_the_best_window_counts() -> None:
    now_s = [0.0]
    meter = LimitMeter(2, lambda: now_s[0], np.ones(1 << 10, np.uint8))
    library, scripted = meter._library, ScriptedLimits(now_s)
    meter._library = scripted  # type: ignore[assignment]
    limits = meter.measure(rounds=1)
    meter._library = library
    meter.close()
    assert limits.f32_flops_per_s == pytest.approx(1000 / 0.025)
    assert limits.int8_ops_per_s == pytest.approx(1000 / 0.025)


def test_each_thread_takes_part_in_the_real_loops() -> None:
    library = load_library(best_level())
    context = library.ts_context_create(2)
    try:
        assert library.ts_limit_spread(context) in (1, 2) and library.ts_limit_spread(None) < 0
    finally:
        library.ts_context_destroy(context)


def test_a_figure_above_its_limit_is_an_error_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Row(cases.prefill(128), "int8", {OURS.name: 104.0}, Bound(100.0, "int8 products"))
    wrong = Row(cases.prefill(512), "int8", {OURS.name: 361.0}, Bound(236.0, "int8 products"))
    assert fine.contradiction is None and replace(wrong, bound=None).contradiction is None
    assert "361.0 tok/s were measured, and the limit is 236.0" in (wrong.contradiction or "")
    printed = text("model", LIMITS, [fine, wrong], [], 1)
    assert "ERROR" in printed and "361.0" in printed and "ERROR" not in text("model", LIMITS, [fine], [], 1)
    saved = tmp_path / "result.json"
    for found, code in (([fine], 0), ([fine, wrong], 1)):
        result = Result("model", "machine", LIMITS, 1, tuple(found), ())
        monkeypatch.setattr("twostroke.lab.bench.run_compare.run", lambda *_, found=result: iter([found]))
        asked = CliRunner().invoke(compare, ["--peers", "none", "--save", str(saved)])
        assert asked.exit_code == code, asked.output
        assert len(json.loads(saved.read_text())["contradictions"]) == code
        assert ("contradict each other" in asked.output) == bool(code)


def test_the_first_line_has_the_highest_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Around each case 900 GOP/s were measured. A first line with 450 would contradict the table."""
    column = Column(Contestant(OURS, Path(sys.executable), "int8"), {"prefill 128": [1.0]})
    column.limits["prefill 128"] = [replace(LIMITS, int8_ops_per_s=2000e9)]
    monkeypatch.setattr("twostroke.backends.cpu.limits.READ_BYTES", 1 << 20)
    monkeypatch.setattr(LimitMeter, "measure", lambda self, rounds=3: LIMITS)
    monkeypatch.setattr(Comparison, "run", lambda self, contestants, rounds: iter([[column]]))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**SHAPES["qwen2.5-0.5b"], "torch_dtype": "bfloat16"}))
    (folder / "model.safetensors").write_bytes(b"")
    asked = Asked("", folder, ("int8",), (), None, rounds=1, threads=1, cases=(cases.prefill(128),))
    (result,) = run(asked, time.perf_counter, lambda line: None, None)
    assert result.limits.int8_ops_per_s == 2000e9 and "2,000 GOP/s" in result.text()


def test_every_engine_is_asked_beside_the_same_busy_program(tmp_path: Path, setup: Setup) -> None:
    """The program runs while the case is asked, and neither before nor after it."""
    counting = "return float(len(open(f'/proc/{os.getppid()}/task/{os.getppid()}/children').read().split()))"
    both = (cases.decode(1, 64), cases.beside_busy(cases.decode(1, 64), 2), cases.decode(2, 64))
    engines = [fake(tmp_path, name, 1.0, counting) for name in (OURS.name, "other")]
    (*_, columns) = Comparison(setup, both, time.perf_counter, lambda line: None, lambda: LIMITS).run(engines, 1)
    for column in columns:
        alone, beside, after = (column.values[case.name][0] for case in both)
        assert beside - alone == 2 and after == alone, column.values
    assert both[1].name == "decode 1 x 64 beside 2 busy programs"
    for listed in (cases.STANDARD, cases.QUICK):
        assert [case.name for case in listed if case.busy] == [
            "decode 1 x 512 beside a busy program",
            "p95 of gaps 1 x 512 beside a busy program",
        ]


def test_our_own_driver_reports_the_gaps_of_one_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    tiny = {**SHAPES["llama-3.2-1b"], **sizes, "head_dim": 32, "intermediate_size": 128, "vocab_size": 100_032}
    monkeypatch.setitem(SHAPES, "tiny", tiny)
    model = str(write_checkpoint("tiny", tmp_path / "tiny"))
    asked = cases.gap(32, 8)
    with Session(OURS, Path(sys.executable), process_environment(), tmp_path / "log") as session:
        session.ask("load", model=model, weights="int8", threads=1, context=64, sequences=1)
        assert 0 < session.ask(asked.command, **asked.arguments) < 60
    sys.path.insert(0, str(peer_room.DRIVERS))
    try:
        from protocol import long_gap
    finally:
        sys.path.remove(str(peer_room.DRIVERS))
    assert long_gap([0.0, 1.0, 3.0]) == 2.0 and long_gap([0.1 * i for i in range(100)] + [99.0]) == pytest.approx(0.1)


@pytest.mark.parametrize("config", [None, "[1"])
def test_a_folder_that_is_no_model_is_refused_before_anything_is_measured(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    notes: list[str] = []
    asked = Asked("llama-3.2-1b", tmp_path, ("int8",), (), None, rounds=1, threads=1, cases=())
    with pytest.raises(ModelError, match=r"config\.json"):
        list(run(asked, time.perf_counter, notes.append, None))
    assert notes == []


def test_gguf_files_are_made_by_llama_cpp_alone(tmp_path: Path) -> None:
    """Where llama.cpp is missing, nothing is written and nothing is measured."""
    asked = Asked(
        "llama-3.2-1b", None, ("int8", "Q4_K_M"), (), tmp_path, rounds=1, threads=1, cases=(cases.prefill(128),)
    )
    with pytest.raises(ConfigError, match="bench peers install llama_cpp") as caught:
        list(run(asked, time.perf_counter, lambda line: None, None))
    assert "Q4_K_M" in str(caught.value)


def test_types_of_weights_are_checked_before_anything_is_written() -> None:
    answer = CliRunner().invoke(compare, ["--weights", "int8,Q4_K_X"])
    assert answer.exit_code == 2 and "'Q4_K_X' is none of int8, int4, f32, bf16" in answer.output
