"""The manifests of a front and its replicas are checked with Kubernetes' own schemas, and their commands with the
program."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.packaging.deployed import DEPLOY
from tests.packaging.test_manifests import VERSIONS
from twostroke.assembly.settings.options import BY_NAME
from twostroke.assembly.settings.resolver import collect
from twostroke.cli.server.addresses import parse_address
from twostroke.cli.server.cluster import status
from twostroke.cli.server.front import command as front
from twostroke.cli.server.replica import command as replica

DOCUMENTS: dict[str, Any] = {
    f"{path.stem} {document['kind']}": document
    for path in sorted((DEPLOY / "kubernetes-cluster").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
}
REPLICAS, FRONT = DOCUMENTS["replica StatefulSet"], DOCUMENTS["front Deployment"]


def container(document: dict[str, Any]) -> Any:
    (only,) = document["spec"]["template"]["spec"]["containers"]
    return only


def test_all_that_is_needed_is_there() -> None:
    policies = {"replica PodDisruptionBudget", "replica NetworkPolicy"}
    assert set(DOCUMENTS) == policies | {f"replica {kind}" for kind in ("StatefulSet", "Service")} | {
        f"front {kind}" for kind in ("Deployment", "Service")
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_each_is_what_kubernetes_expects(version: str) -> None:
    for document in DOCUMENTS.values():
        kubernetes_validate.validate(document, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError, match="serviceNam"):
        broken = REPLICAS | {"spec": REPLICAS["spec"] | {"serviceNam": "x"}}
        kubernetes_validate.validate(broken, version, strict=True)


def test_the_front_calls_every_replica_by_its_name() -> None:
    options = front.make_context("front", list(container(FRONT)["args"])).params
    named, listens = REPLICAS["metadata"]["name"], replica.make_context("replica", container(REPLICAS)["args"]).params
    service, (port,) = DOCUMENTS["replica Service"], container(REPLICAS)["ports"]
    assert REPLICAS["spec"]["serviceName"] == service["metadata"]["name"] and service["spec"]["clusterIP"] == "None"
    expected = [
        (f"{named}-{index}.{service['metadata']['name']}", 8101) for index in range(REPLICAS["spec"]["replicas"])
    ]
    assert [parse_address(text, "a secret") for text in options["replicas"].split(",")] == expected
    assert parse_address(listens["listen"], "a secret") == ("0.0.0.0", port["containerPort"])
    assert service["spec"]["ports"][0]["port"] == port["containerPort"] == 8101
    assert options["model"] == listens["model"]


@pytest.mark.parametrize("document", [REPLICAS, FRONT], ids=["replicas", "front"])
def test_commands_and_variables_are_the_programs(document: dict[str, Any]) -> None:
    found, verb = container(document), {"replica": replica, "front": front}
    context = verb[found["command"][1]].make_context("x", list(found["args"]))
    given = {name: value for name, value in context.params.items() if name in BY_NAME}
    prefixed = {each["name"].removeprefix("TWOSTROKE_").lower(): "x" for each in found["env"]}
    assert set(prefixed) <= set(BY_NAME) and "cluster_secret" in prefixed
    assert collect(given, prefixed)
    for probe in ("startupProbe", "readinessProbe"):
        words = found[probe].get("exec", {}).get("command")
        if words is not None:
            assert words[:3] == ["twostroke", "cluster", "status"]
            assert status.make_context("status", words[3:]).params["replicas"] == "127.0.0.1:8101"
        else:
            assert found[probe]["httpGet"]["path"] == "/ready"


def test_the_front_has_time_to_drain() -> None:
    pod, words = FRONT["spec"]["template"]["spec"], container(FRONT)["args"]
    drain_s = float(words[words.index("--drain") + 1].removesuffix("s"))
    assert pod["terminationGracePeriodSeconds"] > 5 + drain_s
    assert container(FRONT)["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
