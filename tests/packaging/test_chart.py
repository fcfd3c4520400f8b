"""The Helm chart gives what Kubernetes expects, what the program takes, and what the plain manifests contain."""

from __future__ import annotations

import copy
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.packaging.chart import render
from tests.packaging.deployed import DEPLOY
from tests.packaging.test_cluster_manifests import DOCUMENTS, container
from tests.packaging.test_manifests import VERSIONS
from twostroke.cli.server.front import command as front
from twostroke.cli.server.replica import command as replica

CHART = DEPLOY / "helm"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SPLIT: dict[str, Any] = copy.deepcopy(VALUES)
SPLIT["groups"] = [
    {**VALUES["groups"][0], "name": "decoder", "role": "decode", "replicas": 2},
    {**VALUES["groups"][0], "name": "reader", "role": "prefill", "replicas": 1, "drainSeconds": 30},
]


def documents(values: dict[str, Any], release: str = "ts") -> dict[str, Any]:
    """The documents by kind and name."""
    found = {}
    for path in sorted((CHART / "templates").iterdir()):
        for document in yaml.safe_load_all(render(path.read_text(), values, release)):
            if document is not None:
                found[f"{document['kind']} {document['metadata']['name']}"] = document
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [VALUES, SPLIT], ids=["usual", "roles"])
def test_each_is_what_kubernetes_expects(version: str, values: dict[str, Any]) -> None:
    found = documents(values)
    groups = len(values["groups"])
    assert len(found) == 3 * groups + 3
    for document in found.values():
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("values", [VALUES, SPLIT], ids=["usual", "roles"])
def test_the_front_calls_every_replica_of_every_group(values: dict[str, Any]) -> None:
    found = documents(values)
    asked = front.make_context("front", list(container(found["Deployment ts-front"])["args"])).params
    expected = []
    for group in values["groups"]:
        name = f"ts-{group['name']}"
        pods = found[f"StatefulSet {name}"]
        listens = replica.make_context("replica", list(container(pods)["args"])).params
        assert (listens["role"], listens["model"], listens["listen"]) == (group["role"], "spark", "0.0.0.0:8101")
        assert pods["spec"]["serviceName"] == found[f"Service {name}"]["metadata"]["name"]
        assert pods["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == group["drainSeconds"]
        expected += [f"{name}-{index}.{name}:8101" for index in range(pods["spec"]["replicas"])]
    assert asked["replicas"].split(",") == expected and asked["model"] == "spark"


def test_the_policy_lets_the_front_and_all_groups_reach_each_replica() -> None:
    found = documents(SPLIT)
    policy = found["NetworkPolicy ts-replicas"]["spec"]
    chosen = policy["podSelector"]["matchLabels"]
    for group in SPLIT["groups"]:
        labels = found[f"StatefulSet ts-{group['name']}"]["spec"]["template"]["metadata"]["labels"]
        assert chosen.items() <= labels.items()
    allowed = [each["podSelector"]["matchLabels"] for each in policy["ingress"][0]["from"]]
    own = found["Deployment ts-front"]["spec"]["template"]["metadata"]["labels"]
    assert chosen in allowed and any(each.items() <= own.items() for each in allowed)


def test_usual_values_give_what_the_plain_manifests_say() -> None:
    """Probes, security, drain and memory are the same. Names, labels and the quotes of arguments are the chart's
    own."""
    found = documents(VALUES, "twostroke")
    for kind, name, plain in (
        ("StatefulSet", "twostroke-replica", DOCUMENTS["replica StatefulSet"]),
        ("Deployment", "twostroke-front", DOCUMENTS["front Deployment"]),
    ):
        rendered = found[f"{kind} {name}"]["spec"]["template"]["spec"]
        expected = plain["spec"]["template"]["spec"]
        own, other = rendered["containers"][0], expected["containers"][0]
        assert {**own, "args": []} == {**other, "args": []}
        assert {**rendered, "containers": []} == {**expected, "containers": []}


@pytest.mark.parametrize("form", ["{{ include $x }}", "{{ .Values.model | upper }}", "{{ with .Values }}{{ end }}"])
def test_forms_that_this_renderer_does_not_know_are_errors(form: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        render(form, VALUES, "ts")


@pytest.mark.parametrize("values", [VALUES, SPLIT], ids=["usual", "roles"])
def test_helm_itself_gives_the_same(values: dict[str, Any]) -> None:
    """This uses Helm's own library where `helm-python-sdk` is installed, which is too large for the test extra."""
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    with helm.Chart.load(str(CHART)) as chart:
        rendered = chart.render(values, name="ts").values()
    given = [each for text in rendered for each in yaml.safe_load_all(text) if each is not None]
    assert {f"{each['kind']} {each['metadata']['name']}": each for each in given} == documents(values)
