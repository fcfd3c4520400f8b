"""Several threads begin lazy values at once. Each thread gets the whole value, and it is made once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from twostroke.assembly import optional
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.templates.chat_template import ChatTemplate
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.first_use.lazy_module import LazyModule
from twostroke.types.first_use.made_once import made_once
from twostroke.types.grammar import Grammar

THREADS = 8
SPARK = Path(optional.__file__).resolve().parents[1] / "assets" / "spark"


def at_once(work: Callable[[], Any]) -> list[Any]:
    """The results of `work` in eight threads that begin together and often take turns."""
    barrier = threading.Barrier(THREADS)

    def begin() -> Any:
        barrier.wait()
        return work()

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            return [each.result() for each in [pool.submit(begin) for _ in range(THREADS)]]
    finally:
        sys.setswitchinterval(usual_s)


class Lazy:
    """Counts how often its property was made. fails: the number of times that it raises first."""

    def __init__(self, fails: int = 0) -> None:
        self.made = 0
        self.fails = fails

    @made_once
    def value(self) -> object:
        self.made += 1
        turns = threading.Event()
        for _ in range(5):
            turns.wait(0.001)  # the other threads run in this time
        if self.made <= self.fails:
            raise ValueError("not yet")
        return object()

    @made_once
    def both(self) -> tuple[object, object]:
        return self.value, self.value


def test_a_property_is_made_by_one_thread() -> None:
    lazy = Lazy()
    values = at_once(lambda: lazy.both)
    assert lazy.made == 1
    assert len({id(each) for pair in values for each in pair}) == 1


def test_a_property_that_could_not_be_made_is_tried_again() -> None:
    lazy = Lazy(fails=1)
    with pytest.raises(ValueError, match="not yet"):
        _ = lazy.value
    assert lazy.value is lazy.value
    assert lazy.made == 2


def test_each_object_makes_its_own() -> None:
    first, second = Lazy(), Lazy()
    assert first.value is not second.value


IMPORTED_AT_ONCE = """
import json, sys, threading
from twostroke.types.first_use.lazy_module import LazyModule
sys.setswitchinterval(1e-6)
names = json.loads(sys.argv[1])
barrier, wrong = threading.Barrier(8), []

def begin(place):
    barrier.wait()
    for name in names[place:] + names[:place]:
        try:
            if LazyModule(name).__spec__._initializing:
                wrong.append(f"{name} is half made")
        except BaseException as error:
            wrong.append(f"{name}: {error!r}")

threads = [threading.Thread(target=begin, args=(place,)) for place in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(wrong)
"""


def test_modules_that_are_imported_late_may_be_imported_by_all_threads_at_once() -> None:
    names = sorted(each._name for each in vars(optional).values() if isinstance(each, LazyModule))
    assert len(names) > 20
    command = [sys.executable, "-c", IMPORTED_AT_ONCE, json.dumps(names)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stdout.strip()) == (0, "[]"), run.stderr


def _read() -> Callable[[Tokenizer, ChatTemplate], Any]:
    text = "The <|im_end|> of a tale. " * 400

    def read(tokenizer: Tokenizer, template: ChatTemplate) -> Any:
        quoting = tokenizer.quoting()
        shown = quoting.shown(template.render([{"role": "user", "content": text}], each_text=quoting.hide))
        ids = tokenizer.encode_rendered(shown.text, 100_000, quoted=shown.quoted)
        return ids, tokenizer.frame(True), [tokenizer.token_bytes(each) for each in ids[:50]]

    return read


def test_a_fresh_tokenizer_and_template_read_the_same_in_all_threads() -> None:
    def fresh() -> tuple[Tokenizer, ChatTemplate]:
        template = ChatTemplate.from_folder(SPARK)
        assert template is not None
        return Tokenizer.from_folder(SPARK), template

    read = _read()
    alone = read(*fresh())
    tokenizer, template = fresh()
    assert at_once(lambda: read(tokenizer, template)) == [alone] * THREADS


def test_a_fresh_compiler_of_grammars_serves_all_threads() -> None:
    tokenizer = Tokenizer.from_folder(SPARK)
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids)
    try:
        masks = at_once(lambda: compiler.submit(Grammar.regex("[0-9]{2}")).result()[0])
    finally:
        compiler.close()
    assert len({id(mask) for mask in masks}) == THREADS
