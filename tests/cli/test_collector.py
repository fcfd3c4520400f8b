"""The garbage collector does not search lasting objects while a server runs, and searches them again afterwards."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import gc

from twostroke.cli.shared.garbage import lasting_heap

kept = [[number] for number in range(1000)]
before = gc.get_freeze_count()
try:
    with lasting_heap():
        assert gc.get_freeze_count() > before + len(kept), "what is there is frozen"
        assert not any(each is kept for each in gc.get_objects()), "it is not searched"
        raise KeyError("ended")
except KeyError as error:
    assert str(error) == "'ended'"
else:
    raise SystemExit("the error of the block was lost")
assert gc.get_freeze_count() == 0 and any(each is kept for each in gc.get_objects()), "it is searched again"
print("checked")
"""


PUT_OFF = """
import gc, sys

import twostroke.cli.main
from twostroke.cli import start
from twostroke.cli.shared.garbage import resume

seen = []
twostroke.cli.main.main = lambda **named: seen.append(gc.isenabled())
for words in (["serve", "spark"], ["list"], ["chat"], []):
    gc.enable()
    sys.argv[1:] = words
    start.run()
gc.disable()
resume()
print(seen, gc.isenabled(), gc.get_freeze_count() > 1000)
"""


def test_a_command_that_loads_a_model_searches_nothing_until_it_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", PUT_OFF], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[False, True, False, True] True True\n", "")


def test_what_is_there_is_frozen_until_the_end() -> None:
    """This runs in a process of its own, because the heap of a test run is large and would stay frozen."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "checked\n", "")
