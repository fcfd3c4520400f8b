"""Stop strings are found wherever the pieces break, and never leak."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.text.stops import StopMatcher

letters = st.text(alphabet="abé", max_size=24)
stop_lists = st.lists(st.text(alphabet="abé", min_size=1, max_size=5), max_size=4)


def first_complete(text: str, stops: list[str], begin: int = 0) -> tuple[str, str | None]:
    """The definition: the stop string that is complete first after `begin`, or the longer one of two."""
    for end in range(begin + 1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def test_the_definition_agrees_with_find() -> None:
    assert first_complete("xabcx", ["abc", "zz"]) == ("xabcx"[: "xabcx".find("abc")], "abc")


@given(pieces=st.lists(letters, max_size=8), stops=stop_lists)
def test_any_chunking_gives_the_definition(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    out, matched = "", None
    for piece in pieces:
        text, matched = matcher.feed(piece)
        out += text
        if matched is not None:
            break
    if matched is None:
        out += matcher.finish()
    assert (out, matched) == first_complete("".join(pieces), stops)


@given(pieces=st.lists(letters, max_size=8), stops=stop_lists)
def test_holds_back_no_more_than_needed(pieces: list[str], stops: list[str]) -> None:
    matcher, seen, out = StopMatcher(stops), "", ""
    for piece in pieces:
        text, matched = matcher.feed(piece)
        if matched is not None:
            return
        seen, out = seen + piece, out + text
        held = max((n for s in stops for n in range(len(s)) if seen.endswith(s[:n])), default=0)
        assert out == seen[: len(seen) - held]


def test_character_by_character() -> None:
    matcher = StopMatcher(["</stop>"])
    texts = [matcher.feed(character) for character in "a</st</stop>b"]
    assert "".join(text for text, _ in texts) == "a</st"
    assert [stop for _, stop in texts if stop] == ["</stop>"]
    assert matcher.finish() == ""


def test_without_stops_everything_passes() -> None:
    matcher = StopMatcher([])
    assert matcher.feed("abc") == ("abc", None)
    assert matcher.finish() == ""


@pytest.mark.parametrize(("stops", "expected"), [(["abc", "b"], ("a", "b")), (["bc", "abc", "c"], ("", "abc"))])
def test_which_of_several_wins(stops: list[str], expected: tuple[str, str]) -> None:
    assert StopMatcher(stops).feed("abc") == expected


@given(before=letters, after=st.lists(letters, max_size=6), stops=stop_lists)
def test_stops_in_the_unstopped_part_do_not_count(before: str, after: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    out, matched = matcher.feed_unstopped(before), None
    for piece in after:
        text, matched = matcher.feed(piece)
        out += text
        if matched is not None:
            break
    out += "" if matched else matcher.finish()
    whole = before + "".join(after)
    assert (out, matched) == first_complete(whole, stops, len(before))
