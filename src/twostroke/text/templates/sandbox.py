"""A Jinja environment for untrusted templates: no access to Python, and bounds on the memory and time of one render.

Jinja's sandbox keeps a template from Python's internals, but not from memory and time. This environment checks, before
it runs, every operation that can make something large out of something small. These are * ** % + ~ range, widths in
format and padding, replace, join and indent. Any other long work (loops within loops) ends at the render's deadline,
see `run_bounded`.

The work of a single C call with arguments that are already large but legal is not bounded. An example is printing a
list that holds itself many times over. Templates come from the model's folder only, never from a request.
"""

from __future__ import annotations

import ctypes
import json
import operator
import re
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_ITEMS = 16 * 1024 * 1024  # the most characters of a string and the most items of a list
MAX_INTEGER_BITS = 4096
MAX_WIDTH = 10_000
MAX_RANGE_ITEMS = 100_000
MAX_COMPLAINT_CHARACTERS = 1000

T = TypeVar("T")


class RenderTimeout(Exception):
    """The render did not end before its deadline."""


class TemplateComplaint(jinja2.TemplateError):
    """An error that the template itself raises, through `raise_exception`."""


class _Stop(BaseException):
    """Raised inside the render's thread. It is not an Exception, so that no handler on the way catches it."""


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple)) else 0


def _allow(size: int) -> None:
    if size > MAX_ITEMS:
        raise SecurityError(f"the template builds a value of {size:,} items; {MAX_ITEMS:,} are allowed")


def _check_widths(*values: Any) -> None:
    if any(isinstance(value, int) and value > MAX_WIDTH for value in values):
        raise SecurityError(f"the template asks for a width above {MAX_WIDTH:,}")


def _check_format(text: Any, values: Any) -> None:
    """Refuse widths that are written in a format or taken from its arguments."""
    if not isinstance(text, str):
        return
    if re.search(r"\d{5,}", text) or re.search(r"\{[^{}]*\{", text) or re.search(r"%[^a-zA-Z%]*\*", text):
        raise SecurityError("the template's format asks for a width that is too large or computed")
    _allow(len(text) + sum(map(_size, values if isinstance(values, (tuple, list)) else (values,))))


def _multiply(left: Any, right: Any) -> Any:
    for sized, times in ((left, right), (right, left)):
        if _size(sized) and isinstance(times, int):
            _allow(_size(sized) * max(times, 0))
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_INTEGER_BITS:
        raise SecurityError("the template computes an integer that is too large")
    return operator.mul(left, right)


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > MAX_INTEGER_BITS:
        raise SecurityError("the template computes an integer that is too large")
    return operator.pow(left, right)


def _modulo(left: Any, right: Any) -> Any:
    _check_format(left, right)
    return operator.mod(left, right)


def _add(left: Any, right: Any) -> Any:
    _allow(_size(left) + _size(right))
    return operator.add(left, right)


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > MAX_RANGE_ITEMS:
        raise SecurityError(f"the template asks for a range of more than {MAX_RANGE_ITEMS:,} numbers")
    return numbers


def _check_replace(text: Any, old: Any, new: Any) -> None:
    _allow(_size(text) + (_size(text) // max(_size(old), 1) + 1) * _size(new))


_PADDING = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "to_bytes"})


def _check_method(method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Checks the bounds for methods of strings and numbers that can make a long result out of short arguments."""
    name, owner = getattr(method, "__name__", ""), getattr(method, "__self__", None)
    if name in _PADDING:
        _check_widths(*args, *kwargs.values())
    if not isinstance(owner, str):
        return
    if name == "replace" and len(args) >= 2:
        _check_replace(owner, args[0], args[1])
    elif name == "join" and args and isinstance(args[0], (list, tuple)):
        _allow(sum(map(_size, args[0])) + len(owner) * len(args[0]))
    elif name == "translate":
        raise SecurityError("the template uses str.translate, which is not allowed")


class _Generator(CodeGenerator):
    """Sends the operator `~` through the environment, as the sandbox does with the other operators."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat_bounded((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _GenerationTag(Extension):
    """The tag `{% generation %}`, which marks the text that training learns from. Here, the tag is
    replaced by its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _TemplateNamespace(Namespace):
    """A namespace that refuses names with an underscore, which would reach Python's internals."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError("a namespace may not hold a name that begins with an underscore")
        super().__setitem__(name, value)


def _raise_exception(message: str) -> None:
    raise TemplateComplaint(str(message)[:MAX_COMPLAINT_CHARACTERS])


def _strftime_now(form: str) -> str:
    if len(form) > 1000 or re.search(r"%\S*\d{3,}", form):
        raise SecurityError("the template asks for a date in a form that is too long")
    return datetime.now().strftime(form)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Returns JSON without Jinja's HTML escapes: the model was trained on plain JSON."""
    _check_widths(indent)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Sandbox(ImmutableSandboxedEnvironment):
    """The Jinja environment in which chat templates run, with Hugging Face's settings, filters and globals."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})
    code_generator_class = _Generator

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"], cache_size=0
        )
        self.binop_table |= {"*": _multiply, "**": _power, "%": _modulo, "+": _add}
        self.globals |= {
            "range": _range,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "namespace": _TemplateNamespace,
        }
        del self.globals["lipsum"]
        self.filters["tojson"] = _to_json
        for name, check in _FILTER_CHECKS.items():
            self.filters[name] = _checked(self.filters[name], check)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls an object from a template, after the bounds of this module are checked."""
        _check_method(__obj, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Returns str.format as the sandbox wraps it, with a check of its widths before each call."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text = value.__self__

        def guarded(*args: Any, **kwargs: Any) -> str:
            _check_format(text, (*args, *kwargs.values()))
            return wrapped(*args, **kwargs)

        return guarded

    def concat_bounded(self, parts: tuple[Any, ...]) -> str:
        """Joins the operands of `~`. Raises SecurityError for a text that is too long."""
        texts = [str(part) for part in parts]
        _allow(sum(map(len, texts)))
        return "".join(texts)


def _checked(function: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    """Returns a filter that runs `check` before `function`. Jinja's marks (pass_environment and so on) are kept."""
    marked = hasattr(function, "jinja_pass_arg")

    def guarded(*args: Any, **kwargs: Any) -> Any:
        check(*(args[1:] if marked else args), *kwargs.values())
        return function(*args, **kwargs)

    if marked:
        guarded.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
    return guarded


def _check_joined(value: Any, separator: Any = "", *_: Any) -> None:
    if isinstance(value, (list, tuple)):
        _allow(sum(map(_size, value)) + _size(separator) * len(value))


def _check_replaced(text: Any, old: Any = "", new: Any = "", *_: Any) -> None:
    _check_replace(text, old, new)


def _check_formatted(text: Any, *values: Any) -> None:
    _check_format(text, values)


def _check_later(_value: Any, *others: Any) -> None:
    _check_widths(*others)


_FILTER_CHECKS: dict[str, Callable[..., None]] = {
    "join": _check_joined,
    "replace": _check_replaced,
    "format": _check_formatted,
    "center": _check_later,
    "indent": _check_later,
    "batch": _check_later,
    "slice": _check_later,
    "wordwrap": _check_later,
}


def run_bounded(work: Callable[[], T], limit_s: float) -> T:
    """Runs `work` in a thread of its own; after `limit_s` seconds stops it and raises RenderTimeout.

    The thread is stopped by an exception raised inside it at its next bytecode, which a template cannot catch. If the
    work hangs in one C call, its daemon thread is left running, and the caller still gets its answer in time.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # the caller raises it in its own thread
            failure.append(error)

    thread = threading.Thread(target=body, name="chat-template", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive() and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Stop))
        raise RenderTimeout
    if failure:
        raise failure[0]
    return outcome[0]
