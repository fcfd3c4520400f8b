"""`twostroke simulate` and `twostroke trace`: their output, their files and their refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.sim.machines import CONFIG
from twostroke.cli.main import main

MACHINE, CPU = ("--hardware", "rtx4090"), ("--hardware", "epyc-9654")


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def simulate(model: str, *words: str) -> Result:
    return run("simulate", "--model", model, *MACHINE, *words)


def report(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_named_workload_is_reported_with_the_bench_figures(model: str) -> None:
    words = ("--workload", "steady-chat", "--rate", "5", "--requests", "40", "--ttft", "1s")
    found = report(simulate(model, *words, "--json"))
    assert found["figures"]["completed"] == 40 and found["figures"]["good"] == 40
    assert {tool["tool"] for tool in found["other_tools"]} == {"vllm bench serve", "aiperf", "guidellm"}
    assert found["fleet"]["replicas"][0]["requests"] == 40
    again = report(simulate(model, *words, "--json"))
    simulated_s = [each.pop("computed_s") * each.pop("times_real_time") for each in (found, again)]
    assert found == again and simulated_s[0] == pytest.approx(simulated_s[1]) and simulated_s[0] > 7
    text = simulate(model, *words)
    assert "times as fast as real time" in text.output and "TTFT" in text.output


def test_a_mooncake_trace_and_fleets(model: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = '{"timestamp": %d, "input_length": 600, "output_length": 20, "hash_ids": [1, %d]}\n'
    trace.write_text("".join(line % (100 * number, number) for number in range(2, 12)))
    found = report(simulate(model, "--trace", str(trace), "--replicas", "2", "--router", "prefix-affinity", "--json"))
    assert found["figures"]["completed"] == 10 and found["figures"]["cached_tokens"] == 9 * 512
    split = report(simulate(model, "--trace", str(trace), "--decoders", "2", "--link", "10GB/s", "--json"))
    assert split["fleet"]["kv_transfers"]["transfers"] == 10
    scaling = ("--autoscale", "1:3", "--per-replica", "1")
    scaled = report(simulate(model, "--trace", str(trace), *scaling, "--json"))
    assert scaled["figures"]["completed"] == 10
    sooner = report(
        simulate(model, "--trace", str(trace), *scaling, "--start-time", "1s", "--patience", "1s", "--json")
    )
    assert sooner["figures"]["completed"] == 10


def test_a_disk_brings_back_what_memory_has_lost(tmp_path: Path) -> None:
    """Three long prompts take turns in a pool that has room for one of them. The model has some billion parameters."""
    large = {**CONFIG, "hidden_size": 2048, "intermediate_size": 65536, "num_hidden_layers": 16}
    large["num_key_value_heads"] = 1
    (tmp_path / "config.json").write_text(json.dumps(large))
    trace = tmp_path / "trace.jsonl"
    line = '{"timestamp": %d, "input_length": 6149, "output_length": 4, "hash_ids": %s}\n'
    blocks = [list(range(100 * talk, 100 * talk + 12)) for talk in range(3)]
    trace.write_text("".join(line % (60_000 * number, blocks[number % 3]) for number in range(6)))
    words = ("simulate", "--model", str(tmp_path), *CPU, "--trace", str(trace), "--kv-memory", "130MB",
             "--kv-format", "bf16", "--json")  # fmt: skip
    without, found = report(run(*words)), report(run(*words, "--kv-disk", "2GB", "--disk-read", "2GB/s"))
    assert without["figures"]["cached_tokens"] == 0 and "disk" not in without["fleet"]
    assert found["figures"]["completed"] == 6 and found["figures"]["cached_tokens"] > 3 * 6000
    disk = found["fleet"]["disk"]
    assert disk["read_tokens"] == found["figures"]["cached_tokens"] and disk["written_bytes"] > 0
    assert found["setup"]["kv_disk"] == 2 * 10**9 and found["setup"]["disk_read"] == 2e9
    assert found["figures"]["ttft"]["mean"] < without["figures"]["ttft"]["mean"]
    text = run(*words[:-1], "--kv-disk", "2GB").output
    assert "tokens of prompts read" in text


def test_records_and_chrome_traces_are_written_and_replayed(model: str, tmp_path: Path) -> None:
    steps, chrome, other = tmp_path / "steps.jsonl", tmp_path / "chrome.json", tmp_path / "other.json"
    words = ("--rate", "20", "--requests", "12", "--output", "8")
    first = report(simulate(model, *words, "--records", str(steps), "--perfetto", str(chrome), "--json"))
    assert {"ph", "pid", "name"} <= set(json.loads(chrome.read_text())["traceEvents"][0])
    told = run("trace", str(steps), "--perfetto", str(other))
    assert told.exit_code == 0 and "12 requests ended" in told.output
    assert len(json.loads(other.read_text())["traceEvents"]) == len(json.loads(chrome.read_text())["traceEvents"])
    again = report(simulate(model, "--trace", str(steps), "--json"))
    for name in ("ttft", "itl", "e2e"):
        assert again["figures"][name]["p50"] == pytest.approx(first["figures"][name]["p50"], rel=1e-6)


def test_what_cannot_be_is_one_clear_error(model: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"timestamp": 1, "input_length": 6, "output_length": 5}\n{"timestamp": 2, "input_length": 6}\n')
    steps = tmp_path / "steps.jsonl"
    steps.write_text('{"twostroke_steps": 1}\n{"step": 1}\n')
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text(json.dumps({k: v for k, v in CONFIG.items() if k != "hidden_size"}))
    cases = (
        (("simulate", "--model", model, *MACHINE, "--trace", str(broken)), ("line 2", "output_length")),
        (("simulate", "--model", model, *MACHINE, "--trace", str(steps)), ("line 2", "begin_s")),
        (("simulate", "--model", model, "--hardware", "rtx4080"), ("rtx4080", "rtx4090")),
        (("simulate", "--model", str(tmp_path / "bare"), *MACHINE), ("hidden_size",)),
        (("simulate", "--model", model, *MACHINE, "--router", "affinity"), ("affinity", "prefix-affinity")),
        (("simulate", "--model", model, *MACHINE, "--workload", "chat"), ("chat", "steady-chat")),
        (("simulate", "--model", model, *MACHINE, "--link", "fast"), ("--link", "400Gbit/s")),
        (("simulate", "--model", model, *MACHINE, "--autoscale", "3:1"), ("--autoscale", "2:16")),
        (("simulate", "--model", model, *MACHINE, "--autoscale", "1:2", "--decoders", "1"), ("Split pools",)),
        (("simulate", "--model", model, *MACHINE, "--patience", "5s"), ("--patience", "--autoscale LOW:HIGH")),
        (("simulate", "--model", model, *MACHINE, "--perfetto", str(tmp_path / "no" / "x.json")), ("--perfetto",)),
        (("simulate", "--model", model, *MACHINE, "--context", "9k"), ("--context", "8192")),
        (("simulate", "--model", model, *MACHINE, "--kv-disk", "1GB"), ("rtx4090", "--kv-disk")),
        (("simulate", "--model", model, *CPU, "--kv-disk", "1GB", "--decoders", "1"), ("--decoders", "--kv-disk")),
        (("simulate", "--model", model, *CPU, "--kv-disk", "1GB", "--disk-read", "fast"), ("--disk-read", "GB/s")),
        (("trace", str(broken)), ("line 1", "twostroke_steps")),
        (("trace", str(tmp_path / "none")), ("none",)),
    )
    for words, said in cases:
        result = run(*words)
        assert result.exit_code == 2, (words, result.output)
        assert all(part in result.output for part in said), (words, result.output)
        assert "Traceback" not in result.output


def test_a_run_that_fails_leaves_a_good_file_alone(model: str, tmp_path: Path) -> None:
    kept = tmp_path / "report.json"
    kept.write_text("good")
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{}\n")
    assert simulate(model, "--trace", str(broken), "--save", str(kept)).exit_code == 2
    assert kept.read_text() == "good"
    assert simulate(model, "--requests", "3", "--save", str(kept)).exit_code == 0
    assert json.loads(kept.read_text())["figures"]["completed"] == 3
    assert not list(tmp_path.glob("*.partial"))


def test_a_model_over_two_ranks_is_simulated_with_its_exchange(model: str) -> None:
    words = ("--workload", "steady-chat", "--rate", "5", "--requests", "20", "--json", "--tensor-parallel", "2")

    def itl(time: str) -> tuple[float, dict[str, Any]]:
        found = report(simulate(model, *words, "--exchange-time", time, "--exchange-rate", "10Gbit/s"))
        return found["figures"]["itl"]["mean"], found

    (quick_s, found), (slow_s, _) = itl("10us"), itl("1ms")
    assert found["setup"]["division"] == {"way": "tensor", "count": 2} and "predicted" in found["title"]
    # A step has 17 exchanges: four in each of four layers, and one for the logits.
    assert 17 * 0.9e-3 < slow_s - quick_s
    refused = simulate(model, *words)
    assert refused.exit_code == 2 and "--exchange-time 40us" in refused.stderr


def test_adapters_take_time_and_are_told(model: str) -> None:
    words = ("--rate", "20", "--requests", "30", "--prompt", "64", "--output", "32", "--json")
    plain, adapted = (report(simulate(model, *words, *more)) for more in ((), ("--adapters", "4")))
    assert adapted["setup"]["adapters"] == 4 and adapted["setup"]["adapter_rank"] == 16
    assert "adapters" not in plain["setup"]
    guessed = report(simulate(model, *words, "--adapters", "4", "--acceptance", "0.9"))
    assert guessed["setup"]["acceptance"] == 0.9
