"""The one exception tree. HTTP statuses and exit codes are tables elsewhere, keyed by these classes.

TwostrokeError
├── UsageError            the caller asked for something that cannot be (CLI exit code 2, HTTP 400)
│   ├── InvalidRequest    one request is wrong: a field, a token id, an empty prompt
│   │   └── ContextLengthExceeded   prompt, or prompt and max_tokens, do not fit the context
│   └── ConfigError       an option, an environment value or a file of settings is wrong
├── ModelError            a model folder cannot be used (exit code 3)
│   ├── ModelNotFound     no such folder, hub id or revision
│   ├── UnsupportedModel  the architecture or a feature of it is not implemented
│   └── CorruptModel      a file is not what its header claims
├── OutOfMemory           it does not fit, with the arithmetic (exit code 4)
├── BackendError          a native kernel refused or is missing (exit code 5)
│   ├── HelperNotStarted  a process that one request needs did not start (exit code 5, HTTP 500)
│   ├── MeetingLost       another process of the same model has ended, or did not come in time (exit code 5)
│   └── TokenizerFailed   the tokenizer library failed on a text (exit code 5, HTTP 500)
├── Overloaded            too much is waiting to serve this request in time (exit code 7, HTTP 503 with Retry-After)
├── ModelUnavailable      a server with several models could not load one (exit code 7, HTTP 503)
├── Contradiction         measured figures that cannot both be true (exit code 1)
├── UnreadOverflow        a stream's reader was too slow: too many pieces wait (exit code 1)
└── EngineStopped         the engine was shut down while the request was alive (exit code 6)
"""

from __future__ import annotations


class TwostrokeError(Exception):
    """The base of all errors that Twostroke raises on purpose.

    what: one sentence that names the fault. why: the reason, with figures. fix: what the reader can do.
    """

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        self.what = what
        self.why = why
        self.fix = fix
        super().__init__(what)

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.why, self.fix) if part)


class UsageError(TwostrokeError):
    """The caller asked for something impossible."""


class InvalidRequest(UsageError):
    """One request is wrong; `param` names the offending field (OpenAI error shape)."""

    def __init__(
        self, what: str, *, param: str | None = None, code: str | None = None, why: str = "", fix: str = ""
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.param = param
        self.code = code


class ContextLengthExceeded(InvalidRequest):
    """The prompt, or the prompt and max_tokens together, do not fit the context.

    prompt_tokens, most_tokens: the tokens of the prompt and the most that the context holds, where the prompt alone
    does not fit; else 0. exact: True where prompt_tokens is the exact count, False where it is a lower bound.
    """

    prompt_tokens = 0
    most_tokens = 0
    exact = True


def prompt_too_long(least_tokens: int, context_tokens: int, *, exact: bool) -> ContextLengthExceeded:
    """Returns the error for a prompt that does not fit the context. least_tokens: the number of the prompt's tokens, or
    a lower bound of this number. exact: True where `least_tokens` is the number itself."""
    error = ContextLengthExceeded(
        f"The prompt has {'' if exact else 'at least '}{least_tokens:,} tokens, "
        f"and the context has room for {context_tokens:,} in all.",
        param="prompt",
        code="context_length_exceeded",
        fix=f"Shorten the prompt to at most {context_tokens - 1:,} tokens.",
    )
    error.prompt_tokens, error.most_tokens, error.exact = least_tokens, context_tokens, exact
    return error


class ConfigError(UsageError):
    """An option, an environment value or a settings file is wrong."""


class ModelError(TwostrokeError):
    """A model cannot be used."""


class ModelNotFound(ModelError):
    """There is no such folder, hub id or revision."""


class UnsupportedModel(ModelError):
    """The architecture, or a feature of it, is not implemented."""


class CorruptModel(ModelError):
    """A file's content contradicts its header."""


class Contradiction(TwostrokeError):
    """Two figures of one report cannot both be true: at least one was measured badly."""


class OutOfMemory(TwostrokeError):
    """Something does not fit into memory; the message contains the arithmetic."""


class BackendError(TwostrokeError):
    """A native kernel refused its arguments, or the native library is missing."""


class MeetingLost(BackendError):
    """Another process of the same model has ended, or did not come to an exchange in time."""


class HelperNotStarted(BackendError):
    """A process that one request needs, for its grammar or its files, did not start."""


class TokenizerFailed(BackendError):
    """The tokenizer library failed on a text, for example because a split pattern takes too many steps."""


class UnreadOverflow(TwostrokeError):
    """A stream's reader was too slow: more pieces wait than there is room for. The stream's request has ended."""


class EngineStopped(TwostrokeError):
    """The engine was shut down while the request was alive."""


class ModelUnavailable(TwostrokeError):
    """A server with several models could not load one of them.

    retry_after_s: the seconds until a retry can help; None where a retry would fail again.
    """

    def __init__(self, what: str, *, code: str, retry_after_s: float | None = None) -> None:
        super().__init__(what)
        self.code, self.retry_after_s = code, retry_after_s


class Overloaded(TwostrokeError):
    """The engine has as much work as it accepts at a time, or the request would wait longer than promised.

    retry_after_s: the seconds until the request would be in time, if no other request came.
    """

    def __init__(self, what: str, *, retry_after_s: float = 2.0, why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.retry_after_s = retry_after_s
