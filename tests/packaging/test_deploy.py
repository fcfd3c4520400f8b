"""The promises of deploy/: the image, the unit and the manifests are compared with the program itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from tests.packaging.deployed import DEPLOY, ROOT, container, final_stage, manifests, of, pod, unit
from twostroke.assembly.settings.option_values import parse_seconds
from twostroke.assembly.settings.options import BY_NAME
from twostroke.cli.server.serve import command as serve
from twostroke.cli.shared.command import EXIT_CODES
from twostroke.server.gate.security import PUBLIC_PATHS
from twostroke.types.errors import ModelError, OutOfMemory, UsageError

FLAGS = {option for parameter in serve.params for option in parameter.opts}


def options_in(words: list[str]) -> dict[str, str]:
    """The flags with their values. Fails for a flag that `serve` does not have."""
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            assert word in FLAGS, f"{word} is no flag of twostroke serve"
            found[word] = words[place + 1] if place + 1 < len(words) else ""
    return found


# The image.


def test_the_image_runs_as_a_numbered_user_that_is_not_root() -> None:
    assert of("USER") == ["10001:10001"]
    words = [word for word, _ in final_stage()]
    assert words.index("USER") > max(place for place, word in enumerate(words) if word in ("RUN", "COPY"))


def test_the_image_writes_nothing_but_the_cache() -> None:
    assert of("VOLUME") == ["/var/cache/twostroke"]
    variables = dict(re.findall(r"(\w+)=(\S+)", of("ENV")[0]))
    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"
    assert variables["XDG_CACHE_HOME"] == "/var/cache" and variables["HF_HOME"].startswith("/var/cache/twostroke")
    asked = {name.removeprefix("TWOSTROKE_").lower() for name in variables if name.startswith("TWOSTROKE_")}
    assert asked <= set(BY_NAME)


def test_the_image_starts_a_supervised_server_and_holds_no_secret_and_no_compiler() -> None:
    entry = json.loads(of("ENTRYPOINT")[0])
    assert entry[:2] == ["twostroke", "serve"] and "--supervise" in entry
    options_in(entry[2:])
    assert of("STOPSIGNAL") == ["SIGTERM"]
    text = (DEPLOY / "Dockerfile").read_text()
    assert "ADD " not in text and "curl" not in text and "apt-get" not in text
    assert not any("API_KEY" in rest for rest in of("ENV") + of("ARG"))
    assert all("--no-cache-dir" in rest for rest in of("RUN") if "pip install" in rest)
    copied = of("COPY")
    assert all(rest.startswith("--from=build") for rest in copied), "only wheels go into the image"


def test_the_health_check_asks_a_public_path() -> None:
    check = of("HEALTHCHECK")[0]
    words = json.loads(check.partition("CMD ")[2])
    assert words[:2] == ["python", "-c"]
    compile_only = subprocess.run(["python3", "-c", f"import ast; ast.parse({words[2]!r})"], check=False)
    assert compile_only.returncode == 0
    path = re.search(r"127\.0\.0\.1:8000(/\w+)", words[2])
    assert path is not None and path[1] in PUBLIC_PATHS
    assert of("EXPOSE") == ["8000"] and BY_NAME["port"].default == "8000"


def test_only_what_a_build_needs_goes_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert {"pyproject.toml", "setup.py", "csrc", "src"} <= kept
    assert all((ROOT / name).exists() for name in kept)
    compiled_here = "src/twostroke/backends/cpu/lib"
    assert compiled_here in lines, "what a checkout compiled is for its machine; as a link it breaks the build"


# The unit.


def test_the_unit_waits_for_ready_watches_and_drains() -> None:
    settings = unit()
    assert settings["Type"] == ["notify"] and settings["NotifyAccess"] == ["main"]
    words = settings["ExecStart"][0].split()
    flags = options_in(words)
    assert "--supervise" in words
    assert parse_seconds(settings["TimeoutStopSec"][0]) > parse_seconds(flags["--drain"]) + 5
    assert parse_seconds(settings["WatchdogSec"][0]) >= 10
    assert settings["KillMode"] == ["mixed"], "the first signal is the supervisor's, the last one goes to all processes"
    assert settings["Restart"] == ["on-failure"]
    never_again = {code for kind, code in EXIT_CODES if kind in (UsageError, ModelError, OutOfMemory)}
    assert {int(code) for code in settings["RestartPreventExitStatus"][0].split()} == never_again


def test_the_unit_may_write_its_cache_and_nothing_else() -> None:
    settings = unit()
    assert settings["DynamicUser"] == ["yes"] and settings["ProtectSystem"] == ["strict"]
    assert settings["NoNewPrivileges"] == ["yes"] and settings["CapabilityBoundingSet"] == [""]
    assert settings["CacheDirectory"] == ["twostroke"]
    environment = dict(word.split("=", 1) for word in settings["Environment"][0].split())
    assert environment["XDG_CACHE_HOME"] == "/var/cache"
    assert not any(name.startswith("TWOSTROKE_") for name in environment), "those are options; MODEL is none"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_itself_finds_no_fault() -> None:
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(DEPLOY / "twostroke.service")], capture_output=True, text=True, check=False
    )
    ours = [line for line in checked.stderr.splitlines() if "twostroke.service" in line]
    assert ours == []


# The manifests.


def test_the_manifests_hold_together() -> None:
    made = manifests()
    assert set(made) == {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert made["Deployment"]["spec"]["selector"]["matchLabels"] == labels == made["Service"]["spec"]["selector"]
    assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    names = {port["name"] for port in container()["ports"]}
    assert {port["targetPort"] for port in made["Service"]["spec"]["ports"]} <= names


def test_the_pod_is_not_root_and_writes_nothing_but_its_cache() -> None:
    outer, inner = pod()["securityContext"], container()["securityContext"]
    assert outer["runAsNonRoot"] and outer["seccompProfile"]["type"] == "RuntimeDefault"
    assert f"{outer['runAsUser']}:{outer['runAsGroup']}" == of("USER")[0], "the user of the image"
    assert inner["readOnlyRootFilesystem"] and not inner["allowPrivilegeEscalation"]
    assert inner["capabilities"]["drop"] == ["ALL"]
    assert not pod()["automountServiceAccountToken"]
    assert {mount["mountPath"] for mount in container()["volumeMounts"]} == {"/var/cache/twostroke", "/tmp"}
    assert {m["name"] for m in container()["volumeMounts"]} == {volume["name"] for volume in pod()["volumes"]}


def test_a_service_of_this_name_does_not_become_options() -> None:
    assert pod()["enableServiceLinks"] is False


def test_probes_ask_public_paths_and_draining_is_not_ready_but_alive() -> None:
    asked = {name: container()[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert asked == {"startup": "/ready", "readiness": "/ready", "liveness": "/live"}
    assert set(asked.values()) <= PUBLIC_PATHS


def test_there_is_time_to_drain() -> None:
    flags = options_in(container()["args"])
    before_s = int(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    needed_s = before_s + parse_seconds(flags["--drain"])
    assert pod()["terminationGracePeriodSeconds"] > needed_s + 5


def test_the_key_comes_from_a_secret() -> None:
    (variable,) = container()["env"]
    assert variable["name"] == "TWOSTROKE_API_KEY" and "secretKeyRef" in variable["valueFrom"]


# Completion.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_and_their_answers(shell: str) -> None:
    from click.shell_completion import get_completion_class
    from click.testing import CliRunner

    from twostroke.cli.main import main

    if shell == "bash":  # click asks the shell for its version, and not every machine has the shell
        kind = get_completion_class(shell)
        assert kind is not None
        source = kind.source_template
    else:
        source = CliRunner().invoke(main, env={"_TWOSTROKE_COMPLETE": f"{shell}_source"}, prog_name="twostroke").output
        assert "_TWOSTROKE_COMPLETE" in source
    assert "complete" in source
    words = {"COMP_WORDS": "twostroke serve --queued", "COMP_CWORD": "--queued" if shell == "fish" else "2"}
    environment = {"_TWOSTROKE_COMPLETE": f"{shell}_complete", **words}
    answered = CliRunner().invoke(main, env=environment, prog_name="twostroke")
    assert answered.exit_code == 0
    assert "--queued-requests" in answered.output and "--queued-tokens" in answered.output
    first = {"_TWOSTROKE_COMPLETE": f"{shell}_complete", "COMP_WORDS": "twostroke si", "COMP_CWORD": "1"}
    first["COMP_CWORD"] = "si" if shell == "fish" else "1"
    assert "simulate" in CliRunner().invoke(main, env=first, prog_name="twostroke").output
