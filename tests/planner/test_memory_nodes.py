"""A machine with several memory nodes: the plan, what `serve` does by itself, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.config.fake_machine import planted
from tests.planner.figures import LLAMA3_70B, spec_of
from twostroke.assembly.machine.cgroup import group_cores
from twostroke.assembly.machine.core_choice import choose_cores
from twostroke.assembly.machine.topology import read_topology
from twostroke.assembly.settings.env import Machine
from twostroke.assembly.settings.resolver import Resolver, collect
from twostroke.cli.main import main
from twostroke.cli.server import nodes as serving
from twostroke.cost.exchange import LinkRates
from twostroke.lab.planner.ask import make_ask
from twostroke.lab.planner.doctor.meaning import ONE_BILLION
from twostroke.lab.planner.expect import room_for
from twostroke.lab.planner.memory_nodes import ONE, RANKS, REPLICAS, NodeChoice, choose_way, node_words, nodes_of
from twostroke.lab.planner.target import Nodes, Target, guessed_target
from twostroke.models.common.registry import read_model
from twostroke.types.errors import TwostrokeError
from twostroke.types.spec.hardware_guess import guessed_cpu

MEASURED = LinkRates(4e-6, 4e9, "between two ranks of this machine")
XEON, EPYC, NEAR = Nodes(2, 56, "amx", 2.1), Nodes(8, 16, "avx512", 2.2), Nodes(2, 8, "avx2", 1.2)


def target_of(memory_gb: int, nodes: Nodes | None = None) -> Target:
    target = guessed_target(guessed_cpu(64, "avx512"), memory_gb * 10**9, TwostrokeError("busy"))
    return replace(target, nodes=nodes)


def choice(
    size: str, streams: int, nodes: Nodes, memory_gb: int = 1024, link: LinkRates | None = MEASURED, **more: Any
) -> NodeChoice:
    spec = spec_of(LLAMA3_70B) if size == "70B" else read_model(ONE_BILLION)
    ask = make_ask(spec, "int4", None, 2048, None, streams)
    return choose_way(spec, ask, room_for(spec, ask, target_of(memory_gb)), nodes, link, **more)


@pytest.mark.parametrize(
    ("size", "streams", "nodes", "way"),
    [
        ("70B", 1, XEON, RANKS),
        ("70B", 1, EPYC, RANKS),
        ("1B", 1, XEON, RANKS),
        ("1B", 64, XEON, REPLICAS),
        ("70B", 64, EPYC, ONE),
        ("70B", 1, NEAR, ONE),
        ("1B", 64, NEAR, ONE),
    ],
)
def test_the_largest_predicted_rate_decides_and_one_process_where_the_gain_is_small(
    size: str, streams: int, nodes: Nodes, way: str
) -> None:
    found = choice(size, streams, nodes)
    best = max(found.rates, key=lambda each: found.rates[each])
    gain = found.rates[best] / found.rates[ONE]
    assert found.way == way and (best == way and gain >= 1.1 if way != ONE else gain < 1.1)
    assert found.count == (1 if way == ONE else nodes.count) and found.streams == streams
    assert found.options == ({"tensor_parallel": str(nodes.count)} if way == RANKS else {})
    assert found.replicas == (nodes.count if way == REPLICAS else None)
    if way != ONE:
        assert f"{gain:.2f} times" in found.reason and "from other nodes" in found.reason
    else:
        assert "nothing is predicted" in found.reason and found.flag == "--one-process"


def test_what_cannot_be_is_left_out_with_the_reason() -> None:
    small = choice("70B", 64, XEON, memory_gb=60)
    assert REPLICAS not in small.rates and "2 copies of the weights need" in small.reason
    assert RANKS not in choice("1B", 1, replace(XEON, count=3)).rates
    assert "3 ranks do not divide" in choice("1B", 1, replace(XEON, count=3)).reason
    refused = choice("70B", 1, XEON, refused={RANKS: "it reads images", REPLICAS: "it reads images"})
    assert refused.way == ONE and "ranks cannot be: it reads images" in refused.reason


def test_a_slow_exchange_speaks_against_ranks_and_far_memory_for_them() -> None:
    guess, measured = choice("1B", 1, XEON, link=None), choice("1B", 1, XEON)
    assert guess.rates[RANKS] < measured.rates[RANKS] and guess.rates[ONE] == measured.rates[ONE]
    found = [choice("70B", 1, replace(XEON, far=far)).rates for far in (1.0, 1.5, 3.0)]
    gains = [rates[RANKS] / rates[ONE] for rates in found]
    assert gains == sorted(gains) and gains[0] < 1.0 < gains[2]


def test_streams_that_do_not_divide_leave_a_replica_waiting() -> None:
    even, odd, few = (choice("1B", streams, EPYC).rates[REPLICAS] / streams for streams in (16, 17, 1))
    assert odd < even and few > even, "one stream has a node for itself"


def test_a_plan_names_the_option_and_says_nothing_of_one_node() -> None:
    spec = spec_of(LLAMA3_70B)
    ask = make_ask(spec, "int4", None, 2048)
    assert node_words(spec, ask, target_of(512)) == ""
    words = node_words(spec, ask, target_of(512, XEON))
    assert words.startswith("2 memory nodes: `serve --tensor-parallel 2`, a rank on each node, because")


def machine_of(name: str, root: Path) -> Machine:
    planted(name, root)
    topology = read_topology(None, group_cores(root), root)
    assert topology is not None
    placing = choose_cores(topology)
    return Machine(placing.threads, 512 * 10**9, root, placing=placing, topology=topology)


@pytest.mark.parametrize(
    ("name", "count", "threads", "far"), [("xeon_snc2", 4, 28, 1.8), ("epyc_8n", 8, 16, 2.0), ("xeon_2s", 2, 56, 2.0)]
)
def test_nodes_of_known_machines(name: str, count: int, threads: int, far: float, tmp_path: Path) -> None:
    machine = machine_of(name, tmp_path)
    assert nodes_of(machine, "avx512") == Nodes(count, threads, "avx512", pytest.approx(far))
    assert nodes_of(machine, "avx512", count) == Nodes(count, 1, "avx512", pytest.approx(far))
    assert nodes_of(machine, "avx512", count - 1) is None, "a node would have no thread"


@pytest.mark.parametrize("name", ["ryzen_2ccd", "core_hybrid", "big_little", "arm_server", "quota_v1", "small_vm"])
def test_a_machine_of_one_node_is_served_as_before(name: str, tmp_path: Path, served: Served) -> None:
    served.machine = machine_of(name, tmp_path)
    result = CliRunner().invoke(main, ["serve", "spark"], catch_exceptions=False)
    assert (result.exit_code, result.output, result.stderr) == (0, "", "")
    assert served == [("one", None)]


class Served(list[Any]):
    """The processes that `serve` began. machine: the machine on which it runs."""

    machine: Machine


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    found = Served()
    monkeypatch.delenv("TWOSTROKE_THREADS", raising=False)  # a quick run gives engines one thread
    monkeypatch.setattr("twostroke.assembly.settings.env.read_machine", lambda: found.machine)
    monkeypatch.setattr(
        "twostroke.cli.server.serve._serve",
        lambda model, options, *rest: found.append(("one", options["tensor_parallel"])),
    )
    monkeypatch.setattr(
        "twostroke.cli.server.replicas.serve_with_replicas",
        lambda model, options, count, *rest: found.append(("replicas", count)),
    )
    return found


def serve(*words: str) -> str:
    result = CliRunner().invoke(main, ["serve", "spark", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stderr


@pytest.mark.parametrize(
    ("way", "count", "begun", "flag"),
    [
        (REPLICAS, 2, ("replicas", 2), "--replicas 2"),
        (RANKS, 2, ("one", "2"), "--tensor-parallel 2"),
        (ONE, 1, ("one", None), "--one-process"),
    ],
)
def test_serve_does_what_was_chosen_and_prints_the_reason(
    way: str, count: int, begun: Any, flag: str, tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.machine = machine_of("xeon_2s", tmp_path)
    choose = lambda *what, **more: NodeChoice(way, count, "because of this", {}, 64)  # noqa: E731
    monkeypatch.setattr("twostroke.lab.planner.memory_nodes.choose_way", choose)
    assert f"memory nodes: {flag}, because of this; --one-process keeps" in serve()
    assert served == [begun]


@pytest.mark.parametrize(
    ("words", "begun"),
    [
        (("--one-process",), ("one", None)),
        (("--replicas", "3"), ("replicas", 3)),
        (("--tensor-parallel", "4"), ("one", "4")),
        (("--pipeline-parallel", "2"), ("one", None)),
        (("--device", "auto"), ("one", None)),
    ],
)
def test_who_has_chosen_is_not_asked(words: tuple[str, ...], begun: Any, tmp_path: Path, served: Served) -> None:
    served.machine = machine_of("xeon_2s", tmp_path)
    assert serve(*words) == "" and served == [begun]


def test_the_prediction_for_a_real_model_is_printed(tmp_path: Path, served: Served) -> None:
    """spark is so small that no exchange pays, whatever the processor of this test is."""
    served.machine = machine_of("epyc_8n", tmp_path)
    said = serve("--max-sequences", "1")
    assert said.startswith("memory nodes: ") and "--one-process keeps one process" in said
    assert len(served) == 1


def test_options_exclude_ways(tmp_path: Path) -> None:
    machine = machine_of("xeon_2s", tmp_path)

    def reason(**asked: Any) -> str:
        found = serving.choice_for(machine, "spark", Resolver(collect(asked, {})))
        assert found is not None
        return found.reason

    assert "ranks cannot be: ranks take no --max-adapters" in reason(max_adapters=2)
    assert "replicas cannot be: replicas take no --max-adapters" in reason(max_adapters=2)
    fixed = reason(adapter={"a": "b"})
    assert "ranks take no --adapter" in fixed and "replicas cannot" not in fixed
    assert "ranks guess with no model" in reason(speculate="draft:spark-draft")
    alone = serving.choice_for(machine, "spark", Resolver({}), alone=True)
    assert alone is not None and "a supervised server has none" in alone.reason
    assert serving.choice_for(machine, "spark", Resolver(collect({"threads": 1}, {}))) is None


def test_a_model_without_a_plan_is_served_by_one_process(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.machine = machine_of("xeon_2s", tmp_path)

    def refuse(*what: Any) -> Any:
        raise TwostrokeError("Its config lacks a field.")

    monkeypatch.setattr("twostroke.lab.planner.model_config.read_model", refuse)
    said = serve()
    assert "one process, because no plan could be made: Its config lacks a field." in said
    assert served == [("one", None)]
