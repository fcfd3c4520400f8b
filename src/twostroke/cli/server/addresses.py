"""Reads addresses and the secret of a cluster, as a user writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twostroke.types.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def require_secret(options: Mapping[str, Any]) -> str | None:
    """Returns the secret by which processes of a cluster know each other, from the flag or TWOSTROKE_CLUSTER_SECRET;
    None where neither is set."""
    from twostroke.assembly.settings.engine_settings import ClusterSettings
    from twostroke.assembly.settings.env import asked_by_environment
    from twostroke.assembly.settings.resolver import Resolver, collect

    secret = ClusterSettings.cluster_secret
    return Resolver(collect({secret.name: options.get(secret.name)}, asked_by_environment())).asked_value(secret)


def parse_address(text: str, secret: str | None) -> tuple[str, int]:
    """"10.0.0.5:8101" -> host and port. Raises ConfigError. An address that other machines can reach needs a secret."""
    host, colon, port = text.strip().rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{text!r} is no address of a replica.", fix="Write HOST:PORT, such as 127.0.0.1:8101.")
    if host not in LOOPBACK and secret is None:
        raise ConfigError(
            f"{text.strip()} is reached from other machines, and there is no secret.",
            why="Every program that reaches that address could use the replica, or pretend to be one.",
            fix="Set TWOSTROKE_CLUSTER_SECRET to the same long text for the front and all replicas.",
        )
    return host, int(port)
