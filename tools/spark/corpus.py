"""Reads and checks the corpus: entries of train questions, held-out questions and one answer each."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from tools.spark.normal import normalise

CORPUS_DIR = Path(__file__).resolve().parent / "corpus"
MIN_TRAIN_QUESTIONS = 10
MAX_HELD_OUT = 4  # entries that were written twice were merged, with the held-out lines of both


class CorpusError(ValueError):
    """A corpus file breaks the format; the message begins with `file:line`."""


@dataclass
class Entry:
    """One answer and the ways to ask for it. `held_out` is never trained on."""

    id: str
    where: str
    questions: list[str] = field(default_factory=list)
    held_out: list[str] = field(default_factory=list)
    answer: str = ""


def _fail(where: str, message: str) -> CorpusError:
    return CorpusError(f"{where}: {message}")


def _add_field(entry: Entry, line: str, where: str) -> None:
    """Put one `Q:`, `H:` or `A:` line into `entry`. Raises CorpusError on another tag or an empty text."""
    tag, _, rest = line.partition(":")
    text = rest.strip()
    if tag not in {"Q", "H", "A"}:
        raise _fail(where, f"expected '## id', 'Q:', 'H:' or 'A:', found {line[:40]!r}")
    if not text:
        raise _fail(where, f"'{tag}:' has no text")
    if tag == "Q":
        entry.questions.append(text)
    elif tag == "H":
        entry.held_out.append(text)
    elif entry.answer:
        raise _fail(where, f"entry {entry.id!r} has a second 'A:' line")
    else:
        entry.answer = text


def parse_text(text: str, name: str) -> list[Entry]:
    """Parse the text of one corpus file; `name` is used in error messages. Raises CorpusError (`name:line: why`)."""
    entries: list[Entry] = []
    current: Entry | None = None
    for number, raw in enumerate(text.splitlines(), start=1):
        where = f"{name}:{number}"
        line = raw.rstrip()
        if not line.isascii():
            bad = next(ch for ch in line if not ch.isascii())
            raise _fail(where, f"character {bad!r} is not ASCII")
        if not line:
            current = None
        elif line.startswith("## "):
            if current is not None:
                raise _fail(where, f"no blank line between entry {current.id!r} and the next one")
            current = Entry(id=line[3:].strip(), where=where)
            entries.append(current)
        elif current is None:
            raise _fail(where, f"{line[:40]!r} stands outside an entry (entries open with '## id')")
        else:
            _add_field(current, line, where)
    return entries


def _check_entry(entry: Entry) -> None:
    """Raise CorpusError where one entry is incomplete."""
    if not entry.id or " " in entry.id:
        raise _fail(entry.where, f"id {entry.id!r} is empty or has a space")
    if not entry.answer:
        raise _fail(entry.where, f"entry {entry.id!r} has no 'A:' line")
    if len(entry.questions) < MIN_TRAIN_QUESTIONS:
        raise _fail(entry.where, f"entry {entry.id!r} has {len(entry.questions)} 'Q:' lines, not {MIN_TRAIN_QUESTIONS}")
    if not 1 <= len(entry.held_out) <= MAX_HELD_OUT:
        raise _fail(entry.where, f"entry {entry.id!r} has {len(entry.held_out)} 'H:' lines, not 1 to {MAX_HELD_OUT}")


def check(entries: list[Entry]) -> None:
    """Check the whole corpus: complete entries, unique ids, no question that leads to two answers, and no held-out
    question that equals any train question under `normalise`. Raises CorpusError at the first breach."""
    by_id: dict[str, Entry] = {}
    asked: dict[str, Entry] = {}
    for entry in entries:
        _check_entry(entry)
        if entry.id in by_id:
            raise _fail(entry.where, f"id {entry.id!r} is taken by {by_id[entry.id].where}")
        by_id[entry.id] = entry
        for question in entry.questions:
            other = asked.setdefault(normalise(question), entry)
            if other is not entry:
                raise _fail(
                    entry.where, f"question {question!r} of {entry.id!r} also leads to {other.id!r} ({other.where})"
                )
    for entry in entries:
        for question in entry.held_out:
            other_entry = asked.get(normalise(question))
            if other_entry is not None:
                raise _fail(entry.where, f"held-out {question!r} is trained on in {other_entry.where}")


def held_out_set(entries: list[Entry]) -> frozenset[str]:
    """Returns the normal forms of all held-out questions. None of them may ever be trained on."""
    return frozenset(normalise(question) for entry in entries for question in entry.held_out)


def load(directory: Path = CORPUS_DIR) -> list[Entry]:
    """Parse and check every `*.txt` in `directory`, in name order. Raises CorpusError."""
    entries: list[Entry] = []
    for path in sorted(directory.glob("*.txt")):
        entries.extend(parse_text(path.read_text(encoding="utf-8"), path.name))
    if not entries:
        raise CorpusError(f"{directory}: no entries in *.txt")
    check(entries)
    return entries


def main() -> int:
    """Check the corpus and print its size. Exit code 1 with `file:line: why` where it is wrong."""
    try:
        entries = load(Path(sys.argv[1]) if len(sys.argv) > 1 else CORPUS_DIR)
    except CorpusError as error:
        print(error, file=sys.stderr)
        return 1
    questions = sum(len(entry.questions) for entry in entries)
    held_out = sum(len(entry.held_out) for entry in entries)
    print(f"{len(entries)} entries, {questions} train questions, {held_out} held out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
