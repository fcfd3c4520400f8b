"""The manifests are checked strictly with Kubernetes' own schemas: a field that is unknown there fails here."""

from __future__ import annotations

import copy
from typing import Any

import kubernetes_validate
import pytest
from kubernetes_validate.utils import all_versions

from tests.packaging.deployed import manifests

OLDEST = "1.27.0"
VERSIONS = [OLDEST, all_versions()[-1]]


def check(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"])
def test_a_manifest_is_what_kubernetes_expects(kind: str, version: str) -> None:
    check(manifests()[kind], version)


BROKEN = [
    ("Deployment", ["spec", "template", "spec", "containers", 0, "readinesProbe"], {}, "readinesProbe"),
    ("Deployment", ["spec", "template", "spec", "containers", 0, "readinessProbe", "httpGet", "url"], "/", "url"),
    ("Deployment", ["spec", "template", "spec", "securityContext", "runAsNonRoot"], "yes", "boolean"),
    ("Deployment", ["spec", "template", "spec", "terminationGracePeriodSeconds"], "60s", "integer"),
    ("Service", ["spec", "ports", 0, "targetport"], "http", "targetport"),
    ("PodDisruptionBudget", ["spec", "maxUnavailble"], 1, "maxUnavailble"),
    ("NetworkPolicy", ["spec", "ingress", 0, "from_"], [], "from_"),
]


@pytest.mark.parametrize(("kind", "path", "value", "said"), BROKEN, ids=[str(each[1][-1]) for each in BROKEN])
def test_a_wrong_field_is_found(kind: str, path: list[Any], value: Any, said: str) -> None:
    document = copy.deepcopy(manifests()[kind])
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    for version in VERSIONS:
        with pytest.raises(kubernetes_validate.ValidationError, match=said):
            check(document, version)
