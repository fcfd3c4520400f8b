"""Reads the texts of options: sizes, counts, times, addresses, names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from twostroke.ops.quant.formats import STORED, WEIGHT_NAMES
from twostroke.types.speculate import BY_MODEL, INSIDE, SHIPPED_HEADS, WAYS

Item = TypeVar("Item")
Word = TypeVar("Word", bound=StrEnum)

_ADAPTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}")
_TOOL_SERVER = re.compile(r"[A-Za-z0-9_-]{1,32}")
_HOST_NAME = re.compile(r"\*|(\*\.)?[a-z0-9_]([a-z0-9._-]{0,253})|[0-9a-f:.]{2,45}")
_IMAGE_HOST = re.compile(r"(?:(https?)://)?(\*|[a-z0-9_][a-z0-9._-]{0,252}|\[[0-9a-f:.]{2,45}\])(?::(\d{1,5}))?/?")
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._*-]+)(:(\d{1,5}|\*))?")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}

WEIGHTS = (*WEIGHT_NAMES, STORED)
"""Names of formats of weights."""
ENCODER_WEIGHTS = ("usual", "int8", "int16", "bf16", "f32")
"""Names of formats of the weights of image encoders. `usual` follows from the format of the language model's weights.
"""
KEPT = ("f32", "bf16", "int8", "int4")
"""Names of formats of K and V."""


DISK_AUTO = -1
"""The value that stands for a size derived from the free bytes of the disk."""


def parse_bytes(text: str) -> int:
    """ "2GB", "512MiB", "1000000" -> bytes. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError("write a size such as 2GB or 512MiB")
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


def parse_disk(text: str) -> int:
    """ "10GB", "auto" (DISK_AUTO), "off" (0) -> bytes. Raises ValueError."""
    word = text.strip().lower()
    known = {"off": 0, "auto": DISK_AUTO}
    return known[word] if word in known else parse_bytes(text)


def parse_count(text: str) -> int:
    """ "4096", "4k", "32Ki" -> a positive count. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?\s*", text, re.IGNORECASE)
    value = int(float(match[1]) * _UNITS[(match[2] or "").lower()]) if match else 0
    if value < 1:
        raise ValueError("write a positive number such as 4096 or 4k")
    return value


def parse_seconds(text: str) -> float:
    """ "50ms", "1s", "0.05" -> seconds above 0, at most an hour. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*", text, re.IGNORECASE)
    value = float(match[1]) * (1e-3 if (match[2] or "s").lower() == "ms" else 1.0) if match else 0.0
    if not 0 < value <= 3600:
        raise ValueError("write a time above 0 and up to an hour, such as 50ms or 1s")
    return value


def parse_keep_alive(text: str) -> float:
    """Returns seconds from a text as Ollama's clients write it: "5m", "1h30m", "300", "0". A value below zero means for
    ever. Raises ValueError."""
    found = text.strip().lower()
    sign, amount = (-1.0, found[1:]) if found.startswith("-") else (1.0, found)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)", amount)
    if re.fullmatch(r"\d+(?:\.\d+)?", amount):
        parts = [(amount, "s")]
    elif "".join(number + unit for number, unit in parts) != amount or not parts:
        raise ValueError("write a time such as 5m, 0 or -1")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return math.inf if sign < 0 and seconds > 0 else seconds


def parse_port(text: str) -> int:
    """ "8000" -> a TCP port; 0 lets the system choose. Raises ValueError."""
    if not text.strip().isdigit() or int(text) > 65535:
        raise ValueError("write a port between 0 and 65535")
    return int(text)


def parse_text(text: str) -> str:
    """Returns the text without white space around it. Raises ValueError where nothing is left."""
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def parse_switch(text: str) -> bool:
    """ "on", "off" -> a truth value. Raises ValueError."""
    words = {"on": True, "true": True, "1": True, "yes": True, "off": False, "false": False, "0": False, "no": False}
    if text.strip().lower() not in words:
        raise ValueError("write on or off")
    return words[text.strip().lower()]


def parse_adapter(text: str) -> tuple[str, str]:
    """ "sql=adapters/sql" -> a name and a folder. Raises ValueError."""
    name, equals, folder = (part.strip() for part in text.partition("="))
    if not equals or not folder or not _ADAPTER_NAME.fullmatch(name):
        raise ValueError("write NAME=FOLDER, such as sql=adapters/sql; names are letters, digits, and any of ._:/-")
    return name, folder


def parse_tool_server(text: str) -> tuple[str, str]:
    """ "files=http://127.0.0.1:9000/mcp" -> a name and an address. Raises ValueError."""
    name, equals, address = (part.strip() for part in text.partition("="))
    if not equals or not _TOOL_SERVER.fullmatch(name):
        raise ValueError("write NAME=URL, such as files=http://127.0.0.1:9000/mcp; names are letters, digits, - and _")
    return name, parse_url(address)


def parse_url(text: str) -> str:
    """Returns an address such as "http://127.0.0.1:4318". Raises ValueError."""
    if not re.fullmatch(r"https?://[^\s/]+\S*", text.strip()):
        raise ValueError("write an address such as http://127.0.0.1:4318")
    return text.strip()


def parse_speculate(text: str) -> str:
    """Returns "auto", "off", "ngram", "suffix", or a way with a model such as "draft:MODEL" or "medusa:PATH". Raises
    ValueError."""
    word, colon, model = text.strip().partition(":")
    if not colon and word.lower() in (*WAYS, *INSIDE, *SHIPPED_HEADS):
        return word.lower()
    if word.lower() not in BY_MODEL or not model:
        named = [f"{way}:{'PATH' if way in SHIPPED_HEADS else 'MODEL'}" for way in BY_MODEL]
        raise ValueError(f"choose one of {', '.join((*WAYS, *INSIDE, *named))}")
    return f"{word.lower()}:{model}"


def parse_device(text: str) -> str:
    """Returns "auto", "cpu", "cuda" or "cuda:N". Raises ValueError."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", text.strip().lower()):
        raise ValueError("choose auto, cpu, cuda or cuda:N, N the number of the device")
    return text.strip().lower()


def parse_address(text: str) -> tuple[str, int]:
    """ "10.0.0.5:8201" -> host and port. Raises ValueError."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("write HOST:PORT, such as 10.0.0.5:8201")
    return host.strip("[]"), int(port)


def one_of(*choices: str) -> Callable[[str], str]:
    """Returns a reader that accepts only these words."""

    def parse(text: str) -> str:
        if text.strip().lower() not in choices:
            raise ValueError("choose one of " + ", ".join(choices))
        return text.strip().lower()

    return parse


def member_of(kind: type[Word]) -> Callable[[str], Word]:
    """Returns a reader that accepts only the words of this enumeration."""
    word_of = one_of(*kind)
    return lambda text: kind(word_of(text))


def each(parse: Callable[[str], Item]) -> Callable[[str], tuple[Item]]:
    """Returns a parser for an option that may be given several times. It gives each text's value as a tuple of one, so
    that tuples can be joined. `parse` reads one text."""
    return lambda text: (parse(text),)


def parse_name_list(text: str) -> str:
    """"a, b,a" -> "a,b". Raises ValueError for an empty name."""
    return ",".join(parse_names(text))


def parse_names(text: str) -> tuple[str, ...]:
    """"a,b" -> ("a", "b"), each name once. Raises ValueError for an empty name."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise ValueError("a name in it is empty")
    return names


def parse_hosts(text: str) -> tuple[str, ...]:
    """"llm.example.org,*.example.net" -> lower-case names; "*" stands for any name. Raises ValueError."""
    names = tuple(name.lower().strip("[]") for name in parse_names(text))
    if bad := next((name for name in names if not _HOST_NAME.fullmatch(name)), None):
        raise ValueError(f"{bad!r} is no name: write it without scheme, port and path, such as llm.example.org")
    return names


def parse_image_hosts(text: str) -> tuple[str, ...]:
    """ "images.example.org,http://10.0.0.7:8080" -> https://images.example.org:443 and so on. Raises ValueError."""
    return tuple(_image_host(name.lower()) for name in parse_names(text))


def _image_host(text: str) -> str:
    found = _IMAGE_HOST.fullmatch(text)
    port = 0 if found is None else int(found[3] or (80 if found[1] == "http" else 443))
    if found is None or not 0 < port < 65536:
        raise ValueError(f"{text!r} is no host: write HOST, HOST:PORT, http://HOST, or * for all public ones")
    return f"{found[1] or 'https'}://{found[2]}:{port}"


def parse_origins(text: str) -> tuple[str, ...]:
    """ "https://app.example.org,http://localhost:*" -> origins as browsers write them. Raises ValueError."""
    origins = tuple(origin.lower().removesuffix("/") for origin in parse_names(text))
    if bad := next((origin for origin in origins if not _ORIGIN.fullmatch(origin)), None):
        raise ValueError(f"{bad!r} is no origin: write SCHEME://HOST[:PORT] without a path, null, or * for any")
    return origins


def parse_prefix(text: str) -> str:
    """ "/llm/" -> "/llm". Raises ValueError."""
    prefix = "/" + text.strip().strip("/")
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", prefix) or {".", ".."} & set(prefix.split("/")):
        raise ValueError("write a path such as /llm")
    return prefix


def parse_mode(text: str) -> str:
    """ "660" -> the permissions of a file, as chmod takes them. Raises ValueError."""
    if not re.fullmatch(r"0?[0-7]{3}", text.strip()):
        raise ValueError("write three octal digits, such as 660")
    return text.strip()[-3:]
