"""Makes many phrasings from the few of the corpus, so that spark understands questions it has never seen."""

import random
import re

from tools.spark.corpus import Entry
from tools.spark.normal import normalise
from tools.spark.words import FRAMES, PREFIXES, STOPWORDS, SUFFIXES, SYNONYMS

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_KEY_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def vocabulary_lines() -> list[str]:
    """Returns the word lists as lines of text, so that the tokenizer learns their words, too."""
    lines = [f" {form}" for group in SYNONYMS + FRAMES for form in group if form]
    return lines + PREFIXES + [f" {suffix}" for suffix in SUFFIXES]


def _index_forms(groups: list[list[str]]) -> dict[str, list[str]]:
    """Returns for each form all other forms of its groups."""
    index: dict[str, list[str]] = {}
    for group in groups:
        for form in group:
            index.setdefault(form, []).extend(other for other in group if other != form)
    return index


_SYNONYM_OF = _index_forms(SYNONYMS)
_LONGEST = max(len(form.split()) for form in _SYNONYM_OF)
_FRAMES = sorted(
    ((form, [f for f in group if f != form]) for group in FRAMES for form in group if form), key=lambda x: -len(x[0])
)
_DIFFERENCE = re.compile(r"^(?:what is |what's )?(?:the )?difference between (.+?) and (.+?)(\??)$", re.IGNORECASE)

_DIFFERENCE_FORMS = (
    "{} vs {}",
    "{} versus {}",
    "how does {} differ from {}",
    "compare {} and {}",
    "compare {} with {}",
    "how are {} and {} different",
    "{} or {}",
    "is {} the same as {}",
    "what separates {} from {}",
)


def _bare(word: str) -> str:
    return word.lower().strip('?.,!:;"()')


def swap_synonyms(words: list[str], rng: random.Random, rate: float) -> list[str]:
    """Swap words and phrases of the synonym table, each with probability `rate`, longest phrase first."""
    out: list[str] = []
    at = 0
    while at < len(words):
        for length in range(min(_LONGEST, len(words) - at), 0, -1):
            form = " ".join(_bare(word) for word in words[at : at + length])
            if form in _SYNONYM_OF:
                if rng.random() < rate:
                    tail = "?" if words[at + length - 1].endswith("?") else ""
                    out += (rng.choice(_SYNONYM_OF[form]) + tail).split()
                else:
                    out += words[at : at + length]
                at += length
                break
        else:
            out.append(words[at])
            at += 1
    return out


def swap_frame(text: str, rng: random.Random) -> str:
    """Replace the question's opening by another of the same kind (`what is X` -> `explain X`), when its opening is
    known."""
    lowered = text.lower()
    match = _DIFFERENCE.match(lowered)
    if match and rng.random() < 0.6:
        first, second = match[1], match[2]
        if rng.random() < 0.3:
            first, second = second, first
        return rng.choice(_DIFFERENCE_FORMS).format(first, second) + match[3]
    for form, others in _FRAMES:
        if lowered.startswith(form + " "):
            return f"{rng.choice(others)} {text[len(form) + 1 :]}".strip()
    return text


def keywords(text: str) -> list[str]:
    """Returns the words of `text` that are no stopwords."""
    return [word for word in (_bare(raw) for raw in text.split()) if word and word not in STOPWORDS]


def _typo(word: str, rng: random.Random) -> str:
    """Returns the word with one typing error: a swapped, lost, doubled, neighbouring or stray letter."""
    if len(word) < 3:
        return word
    at = rng.randrange(len(word) - 1)
    kind = rng.randrange(5)
    if kind == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    if kind == 2:
        return word[:at] + word[at] + word[at:]
    if kind == 3:
        row = next((r for r in _KEY_ROWS if word[at].lower() in r), "")
        if row:
            near = row[max(0, min(len(row) - 1, row.index(word[at].lower()) + rng.choice((-1, 1))))]
            return word[:at] + near + word[at + 1 :]
    return word[:at] + rng.choice(_LETTERS) + word[at:]


def _base(entry: Entry, rng: random.Random) -> str:
    """Returns a first phrasing: a train question, two of them recombined, or a keyword form."""
    question = rng.choice(entry.questions)
    kind = rng.random()
    if kind < 0.70:
        return question
    other = rng.choice(entry.questions)
    if kind < 0.77:  # the head of one and the tail of another
        head, tail = question.split(), other.split()
        return " ".join(head[: max(1, len(head) // 2)] + tail[len(tail) // 2 :])
    if kind < 0.80:
        return f"{question} {other}"
    if kind < 0.94:  # as typed into a search box
        words = list(dict.fromkeys(keywords(question) + (keywords(other) if rng.random() < 0.4 else [])))
        if rng.random() < 0.6:
            rng.shuffle(words)
        keep = max(2, round(len(words) * rng.uniform(0.6, 1.0)))
        return " ".join(words[:keep]) or question
    # words of the answer, so that a question in the answer's terms is understood too
    words = list(dict.fromkeys(keywords(entry.answer)))
    picked = rng.sample(words, min(len(words), rng.randint(3, 6))) + keywords(question)
    if rng.random() < 0.5:
        rng.shuffle(picked)
    return " ".join(picked)


def _drop_words(words: list[str], rng: random.Random) -> list[str]:
    """Drop function words often and subject words seldom. When fewer than two words would stay, all words stay."""
    rate = rng.choice((0.1, 0.2, 0.4, 1.0))
    kept = [word for word in words if rng.random() >= (rate if _bare(word) in STOPWORDS else 0.07)]
    return kept if len(kept) >= 2 else words


def _decorate(text: str, rng: random.Random) -> str:
    """Add polite words before and after the text, by chance."""
    if rng.random() < 0.22:
        text = f"{rng.choice(PREFIXES)} {text[:1].lower() + text[1:] if not text[:2].isupper() else text}"
    if rng.random() < 0.15:
        end = "?" if text.endswith("?") and rng.random() < 0.5 else ""
        joint = rng.choice((" ", " ", ", "))
        text = text.rstrip("?. ") + joint + rng.choice(SUFFIXES) + end
    return text


def _surface(text: str, rng: random.Random) -> str:
    """Change case, punctuation and spelling: this changes the tokens but not the words."""
    if rng.random() < 0.12:
        words = text.split()
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(words))
            words[at] = _typo(words[at], rng)
        text = " ".join(words)
    ending = rng.random()
    if ending < 0.35:
        text = text.rstrip("?.! ")
    elif ending < 0.50:
        text = text.rstrip("?.! ") + rng.choice(("?", "?", "??", ".", "!", " ?", "...", "?!"))
    if rng.random() < 0.08:
        text = re.sub(r"[-,:'\"]", lambda m: " " if m[0] == "-" else "", text)
    case = rng.random()
    if case < 0.30:
        return text.lower()
    if case < 0.55:
        return text[:1].upper() + text[1:]
    if case < 0.58:
        return text.upper()
    if case < 0.60:
        return text.title()
    return text


def phrase_once(entry: Entry, rng: random.Random) -> str:
    """One random phrasing of the entry's question, not yet checked against the held-out set."""
    if rng.random() < 0.15:  # the corpus's own words, with small changes of surface only
        return _surface(rng.choice(entry.questions), rng)
    text = _base(entry, rng)
    if rng.random() < 0.25:
        text = swap_frame(text, rng)
    words = text.split()
    if rng.random() < 0.55:
        words = swap_synonyms(words, rng, rng.choice((0.15, 0.3, 0.5)))
    if rng.random() < 0.30:
        words = _drop_words(words, rng)
    if rng.random() < 0.05 and len(words) > 3:  # two neighbours swapped
        at = rng.randrange(len(words) - 1)
        words[at], words[at + 1] = words[at + 1], words[at]
    text = " ".join(words) or rng.choice(entry.questions)
    return _surface(_decorate(text, rng), rng) or entry.questions[0]


def phrase(entry: Entry, rng: random.Random, held_out: frozenset[str]) -> str:
    """Returns a random phrasing of the entry's question whose normal form is not in `held_out`.

    A phrasing may equal a held-out question by chance; it is then discarded. An assertion checks the returned phrasing.
    """
    text = phrase_once(entry, rng)
    while normalise(text) in held_out:
        text = phrase_once(entry, rng)
    assert normalise(text) not in held_out
    return text
