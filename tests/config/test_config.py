"""Options, their precedence, their reasons, and the memory arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.published.latent import PUBLISHED
from tests.models.published.states import MAMBA2
from tests.planner.figures import LLAMA3_70B, spec_of
from twostroke.assembly.settings.config import ModelFacts, resolve_engine, resolve_server
from twostroke.assembly.settings.env import asked_by_environment, read_machine
from twostroke.assembly.settings.option_values import parse_bytes, parse_count
from twostroke.assembly.settings.options import BY_NAME
from twostroke.assembly.settings.resolver import Resolver, collect
from twostroke.cost.cache_needs import CacheNeeds, GroupBytes
from twostroke.cost.memory import MemoryNeeds, plan_kv
from twostroke.lab.planner.ask import make_ask
from twostroke.models.common.registry import read_model
from twostroke.types.errors import ConfigError, OutOfMemory

NEEDS = MemoryNeeds(1_000_000_000, 50_000_000, CacheNeeds((GroupBytes(16 * 32_768),), 0, 4096, 64, 512))


def test_flags_win_over_the_environment_and_say_so():
    asked = collect({"threads": 3, "weights": None}, {"threads": "2", "weights": "int4", "unrelated": "1"})
    assert asked["threads"].value == 3 and asked["threads"].source == "--threads"
    assert asked["weights"].value == "int4" and "TWOSTROKE_WEIGHTS" in asked["weights"].source
    assert "unrelated" not in asked


@pytest.mark.parametrize(
    ("options", "needle"),
    [
        ({"wieghts": "int8"}, "weights"),
        ({"weights": "int3"}, "int8"),
        ({"kv_memory": "much"}, "2GB"),
        ({"port": "70000"}, "65535"),
    ],
)
def test_bad_options_get_one_clear_error(options, needle):
    with pytest.raises(ConfigError) as caught:
        collect(options, {})
    assert needle in str(caught.value)


@pytest.mark.parametrize(
    ("config", "options", "kv_format"),
    [
        (LLAMA3_70B, {"weights": "int8"}, "int8"),
        (LLAMA3_70B, {"weights": "int4"}, "int8"),
        (LLAMA3_70B, {"weights": "bf16"}, "bf16"),
        (LLAMA3_70B, {"weights": "f32"}, "f32"),
        (LLAMA3_70B, {"weights": "int8", "device": "auto"}, "int8"),
        (LLAMA3_70B, {"weights": "int8", "device": "cpu"}, "int8"),
        (LLAMA3_70B, {"weights": "int8", "kv_format": "bf16"}, "bf16"),
        (PUBLISHED["openbmb/MiniCPM3-4B"][0], {"weights": "int8"}, "bf16"),
        ({**LLAMA3_70B, "head_dim": 192}, {"weights": "int8"}, "int8"),
        ({**LLAMA3_70B, "head_dim": 256}, {"weights": "int8"}, "bf16"),
        ({**LLAMA3_70B, "head_dim": 256}, {"weights": "int4", "kv_format": "int8"}, "int8"),
        ({**LLAMA3_70B, "head_dim": 256}, {"weights": "f32"}, "f32"),
    ],
)
def test_k_and_v_are_bytes_where_weights_are_rounded_and_attention_multiplies_bytes(config, options, kv_format):
    spec = spec_of(config)
    resolver = Resolver(collect(options, {}))
    resolve_engine(resolver, ModelFacts("m", None, spec), read_machine(), "avx2")
    assert resolver.resolved().cache.kv_format == kv_format
    assert make_ask(spec, options["weights"], options.get("kv_format")).kv_format == kv_format


@pytest.mark.parametrize(("options", "level"), [({}, "generic"), ({"cpu_level": "generic"}, "avx512")])
def test_k_and_v_stay_wide_where_bytes_are_slow(options, level):
    resolver = Resolver(collect(options, {}))
    resolve_engine(resolver, ModelFacts("m", None, spec_of(LLAMA3_70B)), read_machine(), level)
    assert resolver.resolved().cache.kv_format == "bf16"


@pytest.mark.parametrize(("text", "value"), [("2GB", 2 * 10**9), ("512MiB", 2**29), ("1.5g", 15 * 10**8), ("77", 77)])
def test_sizes(text, value):
    assert parse_bytes(text) == value


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_value_error(text):
    for parse in (parse_bytes, parse_count):
        try:
            assert parse(text) >= 0
        except ValueError:
            pass


def test_environment_names_are_the_options_names():
    assert asked_by_environment({"TWOSTROKE_KV_MEMORY": "1GB", "HOME": "/x", "TWOSTROKE_PORT": ""}) == {
        "kv_memory": "1GB"
    }
    machine = read_machine()
    assert machine.cores >= 1 and machine.available_bytes > 2**20


def test_a_public_address_needs_a_key():
    with pytest.raises(ConfigError, match="API key"):
        resolve_server(Resolver(collect({"host": "0.0.0.0"}, {})), "m")
    resolver = Resolver(collect({"host": "0.0.0.0", "api_key": "k"}, {}))
    resolve_server(resolver, "m")
    assert resolver.resolved().listen.host == "0.0.0.0"


def test_every_option_has_help_and_a_default_in_words():
    assert all(option.help.endswith(".") and option.default for option in BY_NAME.values())


def test_kv_pool_fills_what_is_free_up_to_what_is_useful():
    plan = plan_kv(NEEDS, 24_000_000_000, None)
    assert plan.tokens == 64 * 4096
    tight = plan_kv(NEEDS, 2_000_000_000, None)
    assert tight.kv_bytes <= 2_000_000_000 * 0.9 - 1_050_000_000 < tight.kv_bytes + 16 * 32_768


def test_a_model_that_cannot_fit_is_refused_with_the_arithmetic():
    with pytest.raises(OutOfMemory) as caught:
        plan_kv(NEEDS, 900_000_000, None)
    assert "weights 1.00 GB" in str(caught.value) and "0.90 GB are available" in str(caught.value)
    with pytest.raises(OutOfMemory):
        plan_kv(NEEDS, 2_000_000_000, 1_900_000_000)
    with pytest.raises(OutOfMemory):
        plan_kv(NEEDS, 24_000_000_000, 1000)


@given(st.integers(0, 2**36), st.one_of(st.none(), st.integers(0, 2**36)))
def test_a_plan_never_exceeds_what_is_available(available, asked):
    try:
        plan = plan_kv(NEEDS, available, asked)
    except OutOfMemory:
        return
    assert plan.pools.pages[0].num_pages >= 1
    assert plan.kv_bytes + NEEDS.weight_bytes + NEEDS.buffer_bytes <= available


def test_a_model_with_states_may_be_guessed():
    config, *_ = MAMBA2["state-spaces/mamba2-130m"]
    facts = ModelFacts("m", None, read_model(config))
    for asked, value in (({}, "off"), ({"speculate": "auto"}, "auto"), ({"speculate": "ngram"}, "ngram")):
        resolver = Resolver(collect(asked, {}))
        resolve_engine(resolver, facts, read_machine(), "generic")
        (setting,) = [each for each in resolver.resolved().settings if each.name == "speculate"]
        assert setting.value == value


@pytest.mark.parametrize(("name", "meant"), [("wieghts", "WEIGHTS"), ("kv_memorry", "KV_MEMORY")])
def test_a_misspelt_variable_is_named_once(name: str, meant: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert collect({}, {name: "int8"}) == {}
    assert [record.getMessage().partition("Did")[2] for record in caplog.records] == [f" you mean TWOSTROKE_{meant}?"]


def test_variables_of_other_programs_are_no_spelling_errors(caplog: pytest.LogCaptureFixture) -> None:
    """Kubernetes sets such names for a service that is called twostroke."""
    assert collect({}, {"service_host": "10.0.0.1", "port_8000_tcp_addr": "10.0.0.1", "service_port": "80"}) == {}
    assert not caplog.records
