"""Groups of real processes give the same answers as one process, and one clear error where a rank ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twostroke import LLM, SamplingParams
from twostroke.assembly.find import find_model
from twostroke.assembly.settings.env import process_environment
from twostroke.ops.passes import division
from twostroke.ops.passes.shard import shard_model
from twostroke.ops.program.model import Model
from twostroke.types.errors import BackendError, ConfigError, EngineStopped

SOURCE = Path(__file__).parents[2] / "src"
SMALL = {"threads": "1", "kv_memory": "64MiB", "context": "512"}
MESSAGES = [{"role": "user", "content": "What is prefill? Answer in two sentences."}]
PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=48, logprobs=2, n=2)


def answer(**options: str) -> Any:
    with LLM("spark", **{**SMALL, **options}) as llm:
        return told(llm)


def told(llm: LLM) -> Any:
    made = llm.chat(MESSAGES, PARAMS)
    return [(each.token_ids, each.logprobs, each.finish_reason) for each in made.completions]


@pytest.fixture(scope="module")
def alone() -> Any:
    return answer()


def children() -> list[int]:
    """The process ids of this process's ranks."""
    return children_of(os.getpid())


def children_of(process: int) -> list[int]:
    """The process ids of a process's ranks."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return [each for each in found if "rank" in _words(each)]


def _words(process: int) -> list[str]:
    """A process's command; empty where it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")
    return []


@pytest.mark.parametrize("options", [{"tensor_parallel": "2"}, {"pipeline_parallel": "3"}], ids=str)
def test_processes_of_this_machine_give_the_same_answer(options: dict[str, str], alone: Any) -> None:
    assert answer(**options) == alone and len(alone[0][0]) > 10
    assert not children()


@contextlib.contextmanager
def listening(count: int, secret: str | None = None) -> Iterator[list[str]]:
    """`twostroke rank` processes, and the addresses at which they listen."""
    environment = process_environment() | {"PYTHONPATH": str(SOURCE)}
    if secret is not None:
        environment["TWOSTROKE_CLUSTER_SECRET"] = secret
    command = [sys.executable, "-P", "-m", "twostroke", "rank", "spark", "--threads", "1", "--listen", "127.0.0.1:0"]
    with contextlib.ExitStack() as stack:
        addresses = []
        for _ in range(count):
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            addresses.append(process.stdout.readline().split("listens on ")[1].split()[0])
        yield addresses


@pytest.mark.daily
def test_ranks_behind_addresses_do_one_group_after_the_other(alone: Any) -> None:
    with listening(1) as addresses:
        assert answer(tensor_parallel="2", rank_addresses=addresses[0]) == alone
        assert answer(pipeline_parallel="2", rank_addresses=addresses[0]) == alone


@pytest.mark.slow
def test_three_stages_behind_addresses_connect_to_one_another(alone: Any) -> None:
    with listening(2) as addresses:
        assert answer(pipeline_parallel="3", rank_addresses=",".join(addresses)) == alone


def test_a_wrong_secret_is_refused() -> None:
    with listening(1, "one secret") as addresses, pytest.raises(BackendError, match="greeting with rank 1"):
        answer(tensor_parallel="2", rank_addresses=addresses[0])


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_rank_ends_the_engine_with_one_clear_error(sign: signal.Signals) -> None:
    with LLM("spark", **SMALL, tensor_parallel="2") as llm:
        (rank,) = children()
        timer = threading.Timer(0.3, os.kill, (rank, sign))
        timer.start()
        with pytest.raises(EngineStopped, match=f"rank was lost.*Rank 1 has ended.*{sign.name}"):
            for _ in range(1000):
                with contextlib.suppress(BackendError):
                    told(llm)
        timer.join()


@pytest.mark.daily
@pytest.mark.parametrize("way", ["tensor_parallel=2", "pipeline_parallel=3"])
def test_a_rank_that_hangs_in_a_step_is_named_and_left_behind_by_nobody(way: str) -> None:
    name, _, count = way.partition("=")
    with LLM("spark", **SMALL, rank_timeout="1s", **{name: count}) as llm:
        hung = children()[-1]  # with stages, this is the one in the middle
        timer = threading.Timer(0.3, os.kill, (hung, signal.SIGSTOP))
        timer.start()
        with pytest.raises(EngineStopped, match="rank was lost.*Rank 1 hangs: no answer.*did not come in time"):
            for _ in range(1000):
                with contextlib.suppress(BackendError):
                    told(llm)
        timer.join()
    assert not children()


def test_a_rank_that_ends_while_nothing_runs_ends_the_server_at_once() -> None:
    command = [sys.executable, "-P", "-m", "twostroke", "serve", "spark", "--threads", "1", "--port", "0"]
    command += ["--kv-memory", "64MiB", "--tensor-parallel", "2", "--json"]
    environment = process_environment() | {"PYTHONPATH": str(SOURCE)}
    pipe = subprocess.PIPE
    server = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
    try:
        assert server.stdout is not None and server.stdout.readline()
        (rank,) = children_of(server.pid)
        os.kill(rank, signal.SIGKILL)
        _, said = server.communicate(timeout=60)
    finally:
        server.kill()
    assert server.returncode == 6 and "Rank 1 has ended: its process was ended by SIGKILL" in said


def test_counts_and_options_that_cannot_be_are_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="among 3 ranks") as error:
        answer(tensor_parallel="3")
    assert "1 or 2" in error.value.fix
    with pytest.raises(ConfigError, match="in 64 stages"):
        answer(pipeline_parallel="64")
    with pytest.raises(ConfigError, match="cannot be together"):
        answer(tensor_parallel="2", pipeline_parallel="2")
    with pytest.raises(ConfigError, match="names 2 members"):
        answer(tensor_parallel="2", rank_addresses="127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(ConfigError, match="there is no secret"):
        answer(tensor_parallel="2", rank_addresses="10.0.0.1:8201")
    with pytest.raises(ConfigError, match="--rank-timeout belongs"):
        answer(rank_timeout="5s")
    with pytest.raises(ConfigError, match="not possible over several ranks"):
        answer(tensor_parallel="2", speculate="medusa")
    assert not children()


@pytest.mark.daily
def test_a_rank_s_part_is_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[int] = []

    def counted(spec: Model, rank: int, count: int) -> Model:
        cut.append(rank)
        return shard_model(spec, rank, count)

    monkeypatch.setattr(division, "shard_model", counted)
    found = find_model("spark", {**SMALL, "tensor_parallel": "2"})
    assert found.part is found.part and found.part.program is not found.spec.program
    assert cut == [0]


def test_a_leader_that_is_killed_leaves_no_rank_behind() -> None:
    code = (
        "import time; from twostroke import LLM; llm = LLM('spark', threads='1', tensor_parallel='2'); "
        "print('up', flush=True); time.sleep(60)"
    )
    environment = process_environment() | {"PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    ranks = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    assert len(ranks) == 1
    process.kill()
    process.wait()
    until = time.monotonic() + 60
    while time.monotonic() < until and Path(f"/proc/{ranks[0]}").exists() and not _zombie(ranks[0]):
        time.sleep(0.05)
    assert not Path(f"/proc/{ranks[0]}").exists() or _zombie(ranks[0])


def _zombie(process_id: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True
