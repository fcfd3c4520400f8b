"""Finds control tokens in texts: the tokens that mark the turns of a conversation. Also encodes texts in which some of
these tokens are ordinary text."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from twostroke.text.talk.catalog import known_marks
from twostroke.text.templates.quoting import Spans
from twostroke.types.errors import InvalidRequest
from twostroke.types.first_use.made_once import made_once

if TYPE_CHECKING:
    import tokenizers

SEARCHED_CHARACTERS = 128 * 1024
"""The number of characters that are searched at a time, so that other threads run in between: the `re` module never
releases the GIL."""

_BRACKETS = {"<": ">", "[": "]"}


class ControlTokens:
    """The control tokens of a vocabulary: those that it flags as special, and those that the template writes in
    brackets (DeepSeek's user and assistant marks are not flagged). Marks of reasoning and tool calls that a model
    writes as text are not included where they are not flagged: earlier answers in a conversation contain these marks.

    always: True where every chat prompt must go through `encode`. The tokenizers library then looks for control tokens
    in normalized text, so a client's text may become a control token that `find` does not see. `encode` makes control
    tokens only of the template's own text.
    """

    def __init__(self, library: tokenizers.Tokenizer, template_sources: Iterable[str] = ()) -> None:
        self._library = library
        self._added = library.get_added_tokens_decoder()
        sources = list(template_sources)
        exempt = known_marks()

        def is_control(token: tokenizers.AddedToken) -> bool:
            text = token.content
            bracketed = len(text) > 2 and _BRACKETS.get(text[0]) == text[-1]
            written = bracketed and text not in exempt and any(text in source for source in sources)
            return bool(text) and (token.special or written)

        self._ids = {token.content: token_id for token_id, token in self._added.items() if is_control(token)}
        self.always = library.normalizer is not None and any(self._added[i].normalized for i in self._ids.values())

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields the places (start, end) of control tokens' texts: from the left, the longest at each place."""
        if not any(beginning in text for beginning in self._beginnings):
            return
        place = 0
        while place < len(text):
            window_end = place + SEARCHED_CHARACTERS
            found = self._pattern.search(text, place, window_end + self._longest)
            if found is None or found.start() >= window_end:
                place = window_end
                continue
            yield found.span()
            place = found.end()

    def encode(self, text: str, quoted: Spans, add_special_tokens: bool) -> list[int]:
        """Returns token ids, where control tokens' texts count as text within `quoted` and as control tokens elsewhere.

        Raises InvalidRequest where the vocabulary can write a quoted text as a control token only.
        """
        library, twins, ids = self._plain
        pieces: list[str] = []
        num_twins = last = 0
        for start, end in (*quoted, (len(text), len(text))):
            before = self._with_twins(text[last:start], twins)
            num_twins += len(before) // 2
            pieces += [*before, text[start:end]]
            last = end
        joined = "".join(pieces)
        made: list[int] = library.encode_batch_fast([joined], add_special_tokens=False)[0].ids
        found = [ids.get(token_id, token_id) for token_id in made]
        control = set(self._ids.values())
        if sum(token_id in control for token_id in found) != num_twins:
            raise InvalidRequest(
                "The text holds a control token's text, which this model's tokenizer cannot write as ordinary text.",
                param="prompt",
                fix="Leave it out, or send parse_special: true.",
            )
        if not add_special_tokens:
            return found
        # The post-processor adds the tokens around a text (BOS). It knows the ids of the vocabulary.
        whole: list[int] = library.encode_batch_fast([joined], add_special_tokens=True)[0].ids
        end = len(made)
        first = next(place for place in range(len(whole) - end + 1) if whole[place : place + end] == made)
        return [*whole[:first], *found, *whole[first + end :]]

    def _with_twins(self, text: str, twins: dict[str, str]) -> list[str]:
        """Returns the text in pieces: ordinary text alternates with the substitutes of its control tokens. twins: the
        substitute text of each control token, see `_plain`."""
        pieces, last = [], 0
        for start, end in self.find(text):
            pieces += [text[last:start], twins[text[start:end]]]
            last = end
        return [*pieces, text[last:]]

    @made_once
    def _plain(self) -> tuple[tokenizers.Tokenizer, dict[str, str], dict[int, int]]:
        """Returns a tokenizer with the same model (shared, not copied), in which each control token has another text: a
        substitute that cannot be guessed (its twin). So a control token's usual text is ordinary text for this
        tokenizer.

        Returns also the substitutes by their tokens' texts, and a map from this tokenizer's ids of added tokens to
        those of the vocabulary.
        """
        import tokenizers

        library = tokenizers.Tokenizer(self._library.model)
        for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
            if getattr(self._library, part) is not None:
                setattr(library, part, getattr(self._library, part))
        mark = str(secrets.randbelow(10**23) + 10**23)
        twins = {text: f"{mark}{place:06}" for place, text in enumerate(self._ids)}
        texts = {token_id: twins.get(token.content, token.content) for token_id, token in self._added.items()}
        library.add_tokens([_twin(self._added[token_id], text) for token_id, text in sorted(texts.items())])
        found = ((library.token_to_id(text), token_id) for token_id, text in texts.items())
        return library, twins, {own: token_id for own, token_id in found if own is not None}

    @made_once
    def _beginnings(self) -> frozenset[str]:
        return frozenset(text[:2] for text in self._ids)

    @made_once
    def _longest(self) -> int:
        return max(map(len, self._ids))

    @made_once
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(_trie_pattern(sorted(self._ids)))


def _twin(token: tokenizers.AddedToken, text: str) -> tokenizers.AddedToken:
    import tokenizers

    return tokenizers.AddedToken(
        text,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=False,
    )


def _trie_pattern(texts: list[str]) -> str:
    """Returns a pattern that matches the longest of these texts (sorted) and looks at each character of a text once."""
    ends = "" in texts
    by_first: dict[str, list[str]] = {}
    for text in texts:
        if text:
            by_first.setdefault(text[0], []).append(text[1:])
    branches = [re.escape(first) + _trie_pattern(rests) for first, rests in by_first.items()]
    if not branches:
        return ""
    joined = branches[0] if len(branches) == 1 and not ends else f"(?:{'|'.join(branches)})"
    return f"{joined}?" if ends else joined
