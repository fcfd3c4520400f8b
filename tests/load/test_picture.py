"""The picture of a sweep: its texts, and that they fit."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from twostroke.lab.bench.load.picture import sweep_svg
from twostroke.lab.bench.load.sweep import Prediction, Sweep, SweepAsk, UsersPoint, UsersPrediction
from twostroke.lab.workload.figures import figures
from twostroke.lab.workload.observation import Observation


def swept(users: tuple[int, ...], words: str) -> Sweep:
    """A sweep whose prediction is a little off."""
    found = Sweep("a & b", SweepAsk(users, (), 256, 64))
    for count in users:
        # Each user's requests follow one another: 0.1 s to the first token, then one token every 10 ms for each user.
        ends = [0.1 + 0.01 * count * (place + 1) for place in range(64)]
        seen = [Observation(0.0, 0.0, ends[-1], tuple(ends), prompt_tokens=256, output_tokens=64)] * count
        found.users.append(UsersPoint(count, figures(seen)))
    guesses = tuple(UsersPrediction(each, 70.0 + each, 0.012 * each, 0.08) for each in users)
    found.prediction = Prediction(words, guesses, (), ())
    return found


def words_in(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_predicted_points_are_named_as_measured_ones_and_users_are_whole() -> None:
    said = words_in(sweep_svg(swept((1, 2), "a model")))
    assert said.count("1 user") == 2 and said.count("2 users") == 2
    axis = said[said.index("TTFT and users, prompts of 256 tokens, 64 out") :]
    assert {"0", "1", "2"} <= set(axis) and "0.5" not in axis


def test_what_is_predicted_is_said_whole_in_lines_that_fit() -> None:
    words = " ".join(f"word{index}" for index in range(60))
    short, long = sweep_svg(swept((1,), "short")), sweep_svg(swept((1,), words))
    lines = [line for line in words_in(long) if line.startswith("word")]
    assert " ".join(lines) == words and len(lines) > 1 and max(map(len, lines)) <= 150
    heights = [float(ElementTree.fromstring(svg).get("height", 0)) for svg in (short, long)]
    assert heights[1] - heights[0] == 15 * (len(lines) - 1)
    walk = swept((1,), "short")
    walk.interrupted = True
    assert "interrupted" in words_in(sweep_svg(walk))[0]
