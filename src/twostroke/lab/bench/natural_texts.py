"""Texts on which engines are compared with float32: prose in three languages, code, data, a table, a dialogue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from twostroke.types.errors import ConfigError

TEXTS = (
    "The orchard had been planted by her grandfather, row after row of apples whose names nobody used any more. In "
    "spring the bees came before the leaves did, and for two weeks the whole hill hummed. She kept a notebook of "
    "the harvests; the worst year had been 1997, when hail came in June, and the best was the one before her "
    "daughter was born.",
    "If the washing machine does not drain, switch it off and pull the plug. Open the small door at the bottom, put "
    "a flat bowl under it and turn the filter slowly to the left. Most often a coin or a button blocks the pump. "
    "Rinse the filter, screw it in again until it stops, and run the shortest programme without laundry.",
    "def moving_average(values, width):\n    if width < 1:\n        raise ValueError('width must be positive')\n    "
    "total, result = 0.0, []\n    for index, value in enumerate(values):\n        total += value\n        if index "
    ">= width:\n            total -= values[index - width]\n        result.append(total / min(index + 1, "
    "width))\n    return result\n",
    '{"station": "Lindau", "readings": [{"time": "2024-03-01T06:00:00Z", "celsius": 4.5, "humidity": 81}, {"time": '
    '"2024-03-01T12:00:00Z", "celsius": 11.25, "humidity": 56}], "battery": "ok", "next_service": null}',
    "Der alte Müller öffnete jeden Morgen um fünf die Tür seiner Bäckerei. Zuerst kamen die Fahrer der Milchwagen, "
    "dann die Kinder auf dem Weg zur Schule, und wenn um neun die Rentner ihre Brötchen holten, war das Beste schon "
    "verkauft.",
    "Au fond du jardin se trouvait un puits que personne n'utilisait plus. Les enfants y jetaient des cailloux pour "
    "entendre combien de temps ils mettaient à tomber, et leur grand-mère disait toujours qu'il menait jusqu'à la "
    "mer.",
    "| city | founded | bridges |\n| --- | --- | --- |\n| Porto | 1123 | 6 |\n| Bristol | 1155 | 4 |\n| Ghent | "
    "1100 | 29 |\n\nGhent has the most bridges of the three, and it is the oldest of them.\n",
    "User: My bicycle makes a clicking noise when I pedal uphill. What could it be?\nAssistant: Most often it is "
    "the chain or a pedal. Check first whether the noise comes once in each turn of the pedals. If it does, tighten "
    "both pedals and the crank bolts. If it comes more often, clean the chain and look for a stiff link.\n",
)
MOST_TOKENS = 160
"""The most tokens of a run (a part of a text). Each text is cut into runs of this length."""
MOST_RUNS = 8
"""The most runs (parts of at most MOST_TOKENS tokens) that are taken from a user's file, because the logits of a large
vocabulary take a megabyte for each token."""


class TextSet(Struct, frozen=True):
    """Texts on which engines are compared. most_runs: the most runs that are taken from each text; a run is a part of
    at most MOST_TOKENS tokens."""

    texts: tuple[str, ...]
    most_runs: int


OWN_TEXTS = TextSet(TEXTS, 1)


def texts_of(files: Sequence[Path]) -> TextSet:
    """Returns the texts of a user's files; without files, the texts of this module. Raises ConfigError."""
    if not files:
        return OWN_TEXTS
    found = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read as text.", why=str(error), fix="Name a text in UTF-8.") from None
        if not text.strip():
            raise ConfigError(f"{path} is empty.", fix="Name a file with text.")
        found.append(text)
    return TextSet(tuple(found), MOST_RUNS)
