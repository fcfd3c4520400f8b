"""Schemas as libraries write them: zod's (zod_schemas.json: zod 3.25 through zod-to-json-schema 3.25, and zod 4.6's own
toJSONSchema), and those that the installed pydantic makes from the models below."""

from __future__ import annotations

import datetime
import enum
import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pydantic
from pydantic import Field

ZOD: dict[str, Any] = json.loads(Path(__file__).with_name("zod_schemas.json").read_text())


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Child(pydantic.BaseModel):
    n: int


class Node(pydantic.BaseModel):
    v: int
    next: Node | None = None


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    loud: bool


def model(**fields: Any) -> type[pydantic.BaseModel]:
    made: type[pydantic.BaseModel] = pydantic.create_model("Model", **{n: (kind, ...) for n, kind in fields.items()})
    return made


MODELS: dict[str, type[pydantic.BaseModel]] = {
    "plain": model(a=int, b=str, c=bool, d=float),
    "set": model(numbers=set[int], colors=frozenset[Color]),
    "path": model(file=Path),
    "bytes": model(raw=bytes, coded=pydantic.Base64Bytes),
    "secret": model(word=pydantic.SecretStr, raw=pydantic.SecretBytes),
    "dict_literal": model(d=dict[Literal["x", "y"], int], e=dict[Color, bool]),
    "dict": model(d=dict[str, int], e=dict[str, bool]),
    "nested": model(child=Child, children=list[Child], maybe=Child | None),
    "recursive": Node,
    "union": model(pet=Annotated[Cat | Dog, Field(discriminator="kind")]),
    "datetime": model(a=datetime.datetime, b=datetime.date, c=datetime.time, d=datetime.timedelta),
    "uuid": model(u=UUID, url=pydantic.HttpUrl, ip=IPv4Address, any_ip=pydantic.IPvAnyAddress),
    "tuple": model(t=tuple[int, bool], s=tuple[int, ...]),
    "constrained": model(
        a=Annotated[int, Field(gt=0, le=9)],
        s=Annotated[str, Field(pattern="^[a-z]+$", max_length=5)],
        few=Annotated[list[int], Field(min_length=1, max_length=3)],
    ),
    "enum": model(color=Color, word=Literal["a", 1, None]),
    "names": model(d=dict[Annotated[str, pydantic.StringConstraints(pattern="^[a-z]{1,9}$")], int]),
    "any": model(a=Any, x=dict, y=list),
}
PYDANTIC: dict[str, Any] = {name: kind.model_json_schema() for name, kind in MODELS.items()}


def without_unique_items(schema: Any) -> Any:
    """The schema without its rule on unique items: items of an open set may repeat, because a grammar cannot compare
    them."""
    if isinstance(schema, dict):
        return {name: without_unique_items(value) for name, value in schema.items() if name != "uniqueItems"}
    return [without_unique_items(item) for item in schema] if isinstance(schema, list) else schema
