"""What the memory plan counts, and which errors show its arithmetic."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from twostroke.assembly.find import resolve_all
from twostroke.assembly.settings import env
from twostroke.assets import spark_path
from twostroke.cost.cache_needs import CacheNeeds, GroupBytes
from twostroke.cost.memory import PROCESS_BYTES, MemoryNeeds, plan_kv
from twostroke.models.common.registry import read_model
from twostroke.ops.attention.rope_tables import rope_table
from twostroke.ops.step_memory import page_table_bytes
from twostroke.types.errors import OutOfMemory

SPARK = json.loads((spark_path() / "config.json").read_text())


def test_the_stated_size_of_a_rope_table_is_its_size() -> None:
    model = read_model(SPARK)
    (rope,) = model.program.ropes
    table = rope_table(rope.spec, 1000)
    assert model.rope_bytes(1000) == table.cos.nbytes + table.sin.nbytes


def test_a_long_context_is_part_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**SPARK, "max_position_embeddings": 4_000_000}))
    settings = resolve_all(str(tmp_path), {"context": 4_000_000, "kv_memory": "50MB"})
    expected = read_model(SPARK).rope_bytes(4_000_000) + page_table_bytes(4_000_000, 64)
    assert settings["table_bytes"] == expected > 500_000_000
    assert settings["process_bytes"] == PROCESS_BYTES


def test_every_part_is_named_where_it_does_not_fit() -> None:
    caches = CacheNeeds((GroupBytes(16_000),), 0, 4096, 1, 512)
    needs = MemoryNeeds(10_000_000, 20_000_000, caches, 30_000_000, 40_000_000)
    assert needs.fixed_bytes == 100_000_000
    with pytest.raises(OutOfMemory) as caught:
        plan_kv(needs, 100_000_000, 1_000_000, "a limit")
    for part in ("weights 0.01", "buffers 0.02", "tables for the context 0.03", "the process itself 0.04", "(a limit)"):
        assert part in str(caught.value)
    assert plan_kv(needs, 102_000_000, 1_000_000).kv_bytes <= 1_000_000


@pytest.mark.parametrize("kilobytes", [120_000, 290_000, 420_000])
def test_too_few_addresses_end_with_4_and_the_arithmetic(kilobytes: int) -> None:
    """`ulimit -v` is set for the child alone."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (kilobytes * 1024, kilobytes * 1024))

    command = [sys.executable, "-m", "twostroke", "generate", "hi", "--max-tokens", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=limit)
    assert ended.returncode == 4, ended.stderr
    assert "ulimit -v" in ended.stderr and f"{kilobytes * 1024 / 1e9:.2f} GB" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_address_limit_is_one_of_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit does not depend on the memory that this process uses already, as after many tests."""
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(env, "address_space_bytes", lambda: used_bytes + 700_000_000)
    machine = env.read_machine()
    assert 0 < machine.available_bytes <= 700_000_000 + used_bytes // 100
    assert "ulimit -v" in machine.memory_source
