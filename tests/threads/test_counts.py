"""The chosen number of threads, compared with every other number, simulated on recorded topologies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.config.fake_machine import planted
from twostroke.assembly.machine.cgroup import group_cores
from twostroke.assembly.machine.core_choice import CoreChoice, choose_cores
from twostroke.assembly.machine.topology import FULL_CAPACITY, Topology, read_topology
from twostroke.lab.threads.counts import all_figures, counts_to_try, layer_of, layer_seconds
from twostroke.lab.threads.machine import CoreRates

LAYER = layer_of(2048, 8192)
"""A layer of a model of a billion weights."""
SERVER = CoreRates(ops_per_s=200e9, thread_bytes_per_s=12e9, node_bytes_per_s=100e9)
DESKTOP = CoreRates(ops_per_s=300e9, thread_bytes_per_s=30e9, node_bytes_per_s=70e9)


def recorded(name: str, root: Path) -> Topology:
    planted(name, root)
    found = read_topology(None, group_cores(root), root)
    assert found is not None
    return found


def test_what_is_tried_has_the_numbers_that_a_choice_could_be(tmp_path: Path) -> None:
    assert counts_to_try(recorded("core_hybrid", tmp_path / "a")) == [1, 2, 4, 8, 16, 24, 32]
    assert counts_to_try(recorded("xeon_snc2", tmp_path / "b")) == [1, 2, 4, 8, 16, 28, 32, 64, 112, 128, 224]
    assert counts_to_try(recorded("quota_64", tmp_path / "c")) == [1, 2, 3, 4, 8, 16, 32, 64]
    assert counts_to_try(recorded("small_vm", tmp_path / "d")) == [1, 2]


SERVERS = ["one_and_memory", "quota_64", "quota_v1", "small_vm"]
DESKTOPS = ["core_hybrid", "big_little", "ryzen_2ccd", "offline"]
MACHINES = [*((name, SERVER) for name in SERVERS), *((name, DESKTOP) for name in DESKTOPS)]
LEFT_OUT = 1.10
"""The most by which the chosen number may be slower than the best one, because the model is not more exact."""


def longer(topology: Topology, rates: CoreRates, rows: int) -> float:
    """How much longer a layer takes with the chosen threads than with the best number of them."""
    chosen, tried = all_figures(topology, rates, LAYER, rows)
    return chosen.seconds / min(each.seconds for each in [*tried, chosen])


@pytest.mark.parametrize(("name", "rates"), MACHINES)
def test_decoding_is_as_quick_as_with_any_other_number(name: str, rates: CoreRates, tmp_path: Path) -> None:
    topology = recorded(name, tmp_path)
    assert longer(topology, rates, 1) <= LEFT_OUT * unused_quota(topology)


@pytest.mark.parametrize(("name", "rates"), MACHINES)
def test_prompts_are_as_quick_as_with_any_other_number(name: str, rates: CoreRates, tmp_path: Path) -> None:
    """The loss is the part of a core in a quota that gets no thread."""
    topology = recorded(name, tmp_path)
    assert longer(topology, rates, 128) <= LEFT_OUT * unused_quota(topology)


@pytest.mark.parametrize("rows", [1, 8, 128])
@pytest.mark.parametrize("name", ["core_hybrid", "big_little"])
def test_cores_of_half_the_speed_help_and_do_not_hold_up_the_others(name: str, rows: int, tmp_path: Path) -> None:
    topology = recorded(name, tmp_path)
    quick = tuple(core[0].number for core in topology.cores if core[0].capacity == FULL_CAPACITY)
    alone = layer_seconds(topology, DESKTOP, CoreChoice(len(quick), "quick cores", quick), LAYER, rows)
    together = layer_seconds(topology, DESKTOP, choose_cores(topology), LAYER, rows)
    assert together.seconds <= (1.05 if rows < 128 else 0.8) * alone.seconds


def unused_quota(topology: Topology) -> float:
    """What a quota allows, in units of the threads that are chosen for it: 3.5 / 3."""
    return max(1.0, (topology.quota or 0.0) / choose_cores(topology).threads)


RATES = st.builds(
    lambda ops, thread, share: CoreRates(ops * 1e9, thread * 1e9, thread * share * 1e9),
    st.floats(50, 600),
    st.floats(8, 40),
    st.floats(1.5, 8.0),
)


@pytest.mark.parametrize("name", ["offline", "small_vm"])
@given(rates=RATES, rows=st.sampled_from([1, 4, 128]))
def test_whatever_the_rates_no_other_number_is_much_quicker(
    name: str, rates: CoreRates, rows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It tests rates at which few cores reach the memory's rate, and rates at which half of the cores do."""
    topology = recorded(name, tmp_path_factory.mktemp("tree"))
    assert longer(topology, rates, rows) <= LEFT_OUT


def test_half_a_core_of_a_quota_is_used_where_it_is_worth_a_thread(tmp_path: Path) -> None:
    """1.5 cores have two threads, and so have 2.3 cores, because three would do at most 1.15 times as much."""
    topology = recorded("offline", tmp_path)
    assert longer(replace(topology, quota=1.5), SERVER, 128) == 1.0
    assert 1.0 < longer(replace(topology, quota=2.3), SERVER, 128) <= 1.15 * 1.06
