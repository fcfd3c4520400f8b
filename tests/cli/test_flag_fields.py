"""The flags of a verb are fields of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from twostroke.cli.shared.flag_fields import flag, taken, taking


@dataclass(frozen=True)
class Place:
    folder: Path | None = flag("--in", type=click.Path(path_type=Path), default=None, help="Where.")
    names: tuple[str, ...] = flag("--name", multiple=True, help="Which.")


@dataclass(frozen=True)
class Amount:
    count: int = flag("-c", "--count", default=3, help="How many.")
    dry: bool = flag("--dry", is_flag=True, help="Only look.")


SEEN: list[tuple[Any, ...]] = []


@click.command()
@click.argument("model")
@taking(Place, "place")
@click.option("--between", default="b")
@taking(Amount)
@click.option("-v", "verbose", is_flag=True)
def verb(model: str, place: Place, between: str, asked: Amount, verbose: bool) -> None:
    """A verb for these tests."""
    SEEN.append((model, place, between, asked, verbose))


def seen(*words: str) -> tuple[Any, ...]:
    result = CliRunner().invoke(verb, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return SEEN.pop()


def test_a_verb_gets_one_object_of_each_group() -> None:
    assert seen("m") == ("m", Place(None, ()), "b", Amount(3, False), False)
    words = ("m", "--in", "x", "--name", "a", "--name", "b", "-c", "7", "--dry", "-v", "--between", "c")
    assert seen(*words) == ("m", Place(Path("x"), ("a", "b")), "c", Amount(7, True), True)


def test_flags_stand_in_the_help_where_their_group_stands() -> None:
    assert [each.name for each in verb.params] == ["model", "folder", "names", "between", "count", "dry", "verbose"]
    assert verb.help == "A verb for these tests." and verb.name == "verb"


def test_a_wrong_value_is_named_by_its_flag() -> None:
    result = CliRunner().invoke(verb, ["m", "--count", "many"])
    assert result.exit_code == 2 and "--count" in result.output


def test_a_group_is_taken_out_of_options() -> None:
    options = {"count": 1, "other": 2, "dry": True}
    assert taken(Amount, options) == Amount(1, True) and options == {"other": 2}
