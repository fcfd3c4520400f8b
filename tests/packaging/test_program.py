"""The commands, requests and settings of deploy/ and its guides are compared with the program: an unknown name fails
here.

(The program itself ignores TWOSTROKE_ variables that it does not know, because Kubernetes invents some.)
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import httpx2
import pytest

from tests.packaging.deployed import DEPLOY, ROOT, container, manifests, of, unit
from tests.patience import PATIENCE_S
from tests.serve.harness import serving
from twostroke.assembly.settings.options import BY_NAME
from twostroke.assembly.settings.resolver import collect
from twostroke.cli.server.serve import command as serve
from twostroke.server.build import build_server

OURS = {"models_named", "one_process", "supervise", "worker_fds", "as_json", "verbose"}
GUIDES = [ROOT / "docs/guides" / f"{name}.md" for name in ("docker", "kubernetes", "systemd")]


def variables_of_the_image() -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S+)", of("ENV")[0]))


def asked_of(words: list[str], variables: dict[str, str]) -> dict[str, Any]:
    """The arguments as `twostroke serve` understands them. Fails for a flag or a value that it would refuse."""
    assert words[:2] == ["twostroke", "serve"], words
    context = serve.make_context("serve", words[2:])
    options = {name: value for name, value in context.params.items() if name not in OURS}
    prefixed = {name.removeprefix("TWOSTROKE_").lower(): value for name, value in variables.items() if "STROKE" in name}
    assert set(prefixed) <= set(BY_NAME), "a variable that is no option is ignored"
    found = {name: each.value for name, each in collect(options, prefixed).items()}
    model = next(iter(context.params["models_named"]), "spark")
    return {**found, "model": model, "supervise": context.params["supervise"]}


def test_the_image_starts_what_it_means() -> None:
    words = json.loads(of("ENTRYPOINT")[0]) + json.loads(of("CMD")[0])
    assert asked_of(words, variables_of_the_image()) == {"model": "spark", "supervise": True, "host": "0.0.0.0"}


def test_the_pod_starts_what_it_means() -> None:
    words = json.loads(of("ENTRYPOINT")[0]) + container()["args"]
    own = {each["name"]: "a key" for each in container()["env"]}
    asked = asked_of(words, variables_of_the_image() | own)
    assert asked == {
        "model": "spark",
        "supervise": True,
        "host": "0.0.0.0",
        "kv_memory": 10**9,
        "drain": 40.0,
        "api_key": "a key",
    }


def test_the_unit_starts_what_it_means() -> None:
    words = unit()["ExecStart"][0].split()
    assert words[0] == "/usr/bin/env"
    environment = dict(word.split("=", 1) for word in unit()["Environment"][0].split())
    said = [re.sub(r"\$\{(\w+)\}", lambda found: environment[found[1]], word) for word in words[1:]]
    assert asked_of(said, environment) == {"model": "spark", "supervise": True, "drain": 30.0}


def test_the_guides_container_starts_what_it_means() -> None:
    text = GUIDES[0].read_text().replace("\\\n", " ")
    words = shlex.split(next(line for line in text.splitlines() if line.startswith("docker run")))
    image = words.index("twostroke")
    given = [words[place + 1] for place, word in enumerate(words[:image]) if word == "-e"]
    variables = variables_of_the_image() | dict(each.split("=", 1) for each in given)
    asked = asked_of([*json.loads(of("ENTRYPOINT")[0]), *words[image + 1 :]], variables)
    assert asked["api_key"] == "choose-one" and asked["weights"] == "int4"
    assert words[words.index("-p") + 1].endswith(f":{of('EXPOSE')[0]}")


@pytest.mark.parametrize("words", [["--drains", "3s"], ["--drain", "soon"], ["spark", "--drain"]])
def test_what_the_program_does_not_know_is_found(words: list[str]) -> None:
    with pytest.raises(Exception, match="drain|argument"):
        asked_of(["twostroke", "serve", *words], {})
    with pytest.raises(AssertionError):
        asked_of(["twostroke", "serve"], {"TWOSTROKE_APIKEY": "x"})


def test_every_variable_that_is_named_is_an_option() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file()] + GUIDES
    named = {name for path in files for name in re.findall(r"\bTWOSTROKE_([A-Z][A-Z_]*)", path.read_text())}
    assert {"API_KEY", "HOST"} <= named and {name.lower() for name in named} <= set(BY_NAME)


def test_every_path_that_is_probed_answers_without_a_key_on_the_port_that_is_named() -> None:
    check = json.loads(of("HEALTHCHECK")[0].partition("CMD ")[2])
    probed = {re.search(r"127\.0\.0\.1:\d+(/\w+)", check[2])[1]}
    ports = {re.search(r"127\.0\.0\.1:(\d+)/", check[2])[1], of("EXPOSE")[0], BY_NAME["port"].default}
    names = {port["name"]: str(port["containerPort"]) for port in container()["ports"]}
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container()[name]["httpGet"]
        probed.add(probe["path"])
        ports.add(names[probe["port"]])
    for port in manifests()["Service"]["spec"]["ports"]:
        ports.add(names[port["targetPort"]])
    assert ports == {"8000"} and len(probed) == 2
    with build_server("spark", {"kv_memory": "20MB", "threads": 1, "api_key": "k"}) as built:
        with serving(built.parts) as live, httpx2.Client(base_url=live.url, timeout=PATIENCE_S) as client:
            assert {path: client.get(path).status_code for path in probed} == dict.fromkeys(probed, 200)
            assert client.get("/v1/models").status_code == 401
