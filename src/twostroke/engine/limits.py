"""The limits that a request must fit into before it may enter."""

from __future__ import annotations

import itertools

from msgspec import Struct

from twostroke.types.errors import ContextLengthExceeded, InvalidRequest, prompt_too_long
from twostroke.types.objectives import NO_OBJECTIVES, LatencyObjectives
from twostroke.types.output import Prompt
from twostroke.types.pooling import Task
from twostroke.types.sampling.many_answers import num_offered
from twostroke.types.speculate import BY_MODEL, INSIDE, NO_WAYS, WAYS

MAX_OBJECTIVE_S = 3600.0


class EngineLimits(Struct, frozen=True):
    """The limits that a request must fit into. context_tokens: the most tokens of one sequence, prompt and output
    together. vocab_size: the number of rows of the model's embedding.

    pool_tokens: the tokens that the KV pool holds when nothing else runs. end_token_ids: the tokens that end an answer
    of this model. objectives: the TTFT and ITL that every request is promised; a request may ask for longer ones, not
    for shorter ones. speculate: the kinds of speculative decoding that a request may ask for. task: the task that the
    model is served for.
    """

    context_tokens: int
    vocab_size: int
    pool_tokens: int
    end_token_ids: frozenset[int]
    objectives: LatencyObjectives = NO_OBJECTIVES
    speculate: tuple[str, ...] = WAYS
    task: Task = Task.GENERATE

    def check(self, prompt: Prompt) -> int:
        """Returns the number of output tokens that the request may have.

        Raises ContextLengthExceeded or InvalidRequest with the numbers; nothing is ever cut silently.
        """
        self._check_task(prompt)
        self._check_ids(prompt)
        self._check_objectives(prompt)
        self._check_speculate(prompt)
        self._check_beams(prompt)
        length = len(prompt.token_ids)
        if prompt.pooling is not None:
            return self._check_pooled(length)
        if length >= self.context_tokens:
            raise prompt_too_long(length, self.context_tokens, exact=True)
        asked = prompt.params.max_tokens
        if asked is not None and length + asked > self.context_tokens:
            raise ContextLengthExceeded(
                f"The prompt's {length:,} tokens and max_tokens {asked:,} are {length + asked:,}, and the context "
                f"has room for {self.context_tokens:,}.",
                param="max_tokens",
                code="context_length_exceeded",
                fix=f"Ask for at most {self.context_tokens - length:,} tokens, or shorten the prompt.",
            )
        return self._fit_pool(length, asked, prompt.params.min_tokens)

    @property
    def most_tokens(self) -> int:
        """The most tokens, prompt and output, of one sequence that runs alone."""
        return min(self.context_tokens, self.pool_tokens)

    def _check_task(self, prompt: Prompt) -> None:
        if (prompt.pooling is None) is (self.task is Task.GENERATE):
            return
        if prompt.pooling is None:
            raise InvalidRequest(
                "This model generates no text: it makes vectors or scores of texts.",
                code="unsupported_model",
                why=f"It is served for the task {self.task}.",
                fix="Ask it for embeddings or scores, or serve a model that generates.",
            )
        raise InvalidRequest(
            "This model generates text; it makes no vectors or scores of texts.",
            code="unsupported_model",
            fix="Start it with --task embed or --task rerank, or serve an embedding model.",
        )

    def _check_pooled(self, length: int) -> int:
        """Checks the length of a prompt to be pooled (embeddings, scores), which may fill the whole context. Returns 0,
        the number of its output tokens."""
        most = min(self.context_tokens, self.pool_tokens)
        if length > most:
            raise ContextLengthExceeded(
                f"The text has {length:,} tokens, and at most {most:,} fit.",
                param="prompt",
                code="context_length_exceeded",
                fix="Shorten it, or send truncate_prompt_tokens.",
            )
        return 0

    def _fit_pool(self, length: int, asked: int | None, min_tokens: int) -> int:
        room = self.most_tokens - length
        needed = max(1, min_tokens) if asked is None else asked
        if needed > room:
            if self.context_tokens <= self.pool_tokens:
                raise InvalidRequest(
                    f"min_tokens {min_tokens:,} is more than the {room:,} tokens of room after the prompt.",
                    param="min_tokens",
                )
            error = ContextLengthExceeded(
                f"The request needs {length + needed:,} tokens of KV memory, and the whole pool has "
                f"{self.pool_tokens:,}.",
                param="max_tokens" if asked is not None else "prompt",
                code="context_length_exceeded",
                fix="Shorten the request, or start the engine with more --kv-memory.",
            )
            if room < 1:
                error.prompt_tokens, error.most_tokens = length, self.pool_tokens
            raise error
        return room if asked is None else asked

    def _check_ids(self, prompt: Prompt) -> None:
        if not prompt.token_ids:
            raise InvalidRequest("The prompt is empty.", param="prompt", fix="Send at least one token.")
        params = prompt.params
        for name, ids in (
            ("prompt", prompt.token_ids),
            ("logit_bias", params.logit_bias),
            ("stop_token_ids", params.stop_token_ids),
            ("allowed_token_ids", params.allowed_token_ids),
            ("bad_token_ids", tuple(itertools.chain.from_iterable(params.bad_token_ids))),
        ):
            if ids and not (0 <= min(ids) and max(ids) < self.vocab_size):
                wrong = next(token_id for token_id in ids if not 0 <= token_id < self.vocab_size)
                raise InvalidRequest(
                    f"{name} holds the token id {wrong}.", why=f"Ids go from 0 to {self.vocab_size - 1:,}.", param=name
                )

        if params.bad_words:
            raise InvalidRequest(
                "bad_words must be made into token ids before they reach the engine.",
                param="bad_words",
                fix="Use LLM or the server, or give bad_token_ids.",
            )

    def _check_speculate(self, prompt: Prompt) -> None:
        if prompt.speculate is not None and prompt.speculate not in self.speculate:
            fix = f"Use one of {', '.join(self.speculate)}, or leave it out."
            if prompt.speculate in BY_MODEL:
                fix = f"Start the engine with --speculate {prompt.speculate}:MODEL, or leave it out."
            elif prompt.speculate in INSIDE:
                fix = f"Start the engine with --speculate {prompt.speculate}, or leave it out."
            raise InvalidRequest(
                f"speculate has the value {prompt.speculate[:40]!r}, which this engine does not have.",
                param="speculate",
                fix=fix,
            )

    def _check_beams(self, prompt: Prompt) -> None:
        params = prompt.params
        if not params.use_beam_search:
            return
        if prompt.speculate not in (None, *NO_WAYS):
            raise InvalidRequest(
                "speculate cannot be kept in a beam search.",
                param="speculate",
                why="A beam's next token is known only when all beams are computed.",
                fix="Leave it out.",
            )
        ends = self.end_token_ids.union(params.stop_token_ids)
        needed = num_offered(params, len(ends))
        if needed > self.vocab_size:
            raise InvalidRequest(
                f"{params.num_answers} beams and {len(ends)} end tokens need {needed} tokens to choose from, and the "
                f"vocabulary has {self.vocab_size}.",
                param="best_of",
            )

    def _check_objectives(self, prompt: Prompt) -> None:
        asked = prompt.objectives or NO_OBJECTIVES
        for name, wanted_s, kept_s in (
            ("ttft_s", asked.ttft_s, self.objectives.ttft_s),
            ("itl_s", asked.itl_s, self.objectives.itl_s),
        ):
            if wanted_s is None:
                continue
            if kept_s is None:
                raise InvalidRequest(
                    f"{name} cannot be promised: the engine keeps no such objective.",
                    param=name,
                    fix=f"Leave it out, or start the engine with --{name.removesuffix('_s')}.",
                )
            if not kept_s <= wanted_s <= MAX_OBJECTIVE_S:
                raise InvalidRequest(
                    f"{name} must be between the engine's objective of {kept_s:g} and {MAX_OBJECTIVE_S:g}.", param=name
                )
