"""Lists every option of the engine and the server, in the order of docs/CONFIG.md. The flags of the command line, the
TWOSTROKE_* variables and that page are made from these fields of the groups of settings."""

from __future__ import annotations

from typing import Any

from twostroke.assembly.settings.engine_settings import (
    AdapterSettings,
    CacheSettings,
    ClusterSettings,
    CpuSettings,
    DeviceSettings,
    DiskSettings,
    ImageSettings,
    ModelSettings,
    RankSettings,
    SpeculateSettings,
    StepSettings,
    TaskSettings,
)
from twostroke.assembly.settings.option import Option, options_of
from twostroke.assembly.settings.server_settings import (
    ListenSettings,
    LoadSettings,
    NameSettings,
    PageSettings,
    RequestSettings,
    SeveralSettings,
    StoredSettings,
    TalkSettings,
    TraceSettings,
)

ENGINE_OPTIONS = options_of(
    ModelSettings,
    CacheSettings,
    TaskSettings,
    StepSettings,
    ImageSettings,
    CpuSettings,
    RankSettings,
    DeviceSettings,
    SpeculateSettings,
    DiskSettings,
)
SERVER_OPTIONS = options_of(
    ListenSettings,
    TalkSettings,
    NameSettings,
    LoadSettings,
    RequestSettings,
    StoredSettings,
    PageSettings,
    TraceSettings,
)
ADAPTER_OPTIONS = options_of(AdapterSettings)
CLUSTER_OPTIONS = options_of(ClusterSettings)
MODELS_OPTIONS = options_of(SeveralSettings)

BY_NAME: dict[str, Option[Any]] = {
    option.name: option
    for option in ENGINE_OPTIONS + SERVER_OPTIONS + ADAPTER_OPTIONS + CLUSTER_OPTIONS + MODELS_OPTIONS
}
