"""The gate: no code in the package can turn data into code, wherever the data came from. The gate itself is tested,
too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.laws.test_house import nodes_of

SOURCE = Path(__file__).resolve().parents[2] / "src" / "twostroke"
DRIVERS = SOURCE / "lab" / "bench" / "peers" / "drivers"  # programs for other engines' Python: never imported by ours
MODULES = sorted(path for path in SOURCE.rglob("*.py") if DRIVERS not in path.parents)

MODULES_THAT_RUN_DATA = {
    "pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "copyreg", "yaml", "torch",
    "transformers", "tensorflow", "runpy", "code", "codeop", "multiprocessing", "zmq", "xmlrpc", "imp", "zipimport",
}  # fmt: skip
NAMES_THAT_RUN_DATA = {"eval", "exec", "compile", "__import__", "execfile"}
CALLS_THAT_RUN_DATA = {
    "os.system", "os.popen", "os.execv", "os.spawnv", "os.posix_spawn", "np.load", "numpy.load", "np.fromstring",
    "builtins.eval", "builtins.exec", "torch.load", "pd.read_pickle", "importlib.util.spec_from_file_location",
    "importlib.machinery.SourceFileLoader", "socket.recv_pyobj", "subprocess.getoutput", "subprocess.getstatusoutput",
}  # fmt: skip
LAST_NAMES = {name.rpartition(".")[2] for name in CALLS_THAT_RUN_DATA}
"""Only attributes with one of these names are written out and compared."""
WORDS = {"allow_pickle", "trust_remote_code", "weights_only", "auto_map", "from_pretrained", "recv_pyobj", "send_pyobj"}
REFUSED_ATTRIBUTES = WORDS | {"__reduce__", "__reduce_ex__", "__setstate__"}
REFUSED_TEXTS = WORDS | NAMES_THAT_RUN_DATA - {"compile"}
MAY_IMPORT = {  # each takes names from one table or one folder of its own
    "importlib": {
        "__init__.py", "cli/main.py", "models/common/registry.py", "ops/registry.py", "types/first_use/lazy_module.py",
        "server/attached/pdf.py", "text/talk/catalog.py",
    },
    "ctypes": {
        "backends/cpu/build.py", "backends/cpu/library.py", "backends/cuda/arrays.py", "backends/cuda/device.py",
        "backends/cuda/library.py", "assembly/machine/heap.py", "text/templates/sandbox.py",
        "weights/packed/writeback.py", "system/linux.py", "weights/packed/cold_file.py",
        "text/grammar/library.py", "system/macos.py", "system/windows.py",
    },
    "subprocess": {
        "backends/cpu/build.py", "backends/cuda/build.py", "lab/bench/busy.py", "lab/bench/peers/environment.py",
        "lab/bench/peers/session.py", "distributed/cluster/keeper.py", "distributed/cluster/model_process.py",
        "distributed/ranks/processes.py", "text/grammar/guard.py", "images/decoding/decoder.py", "system/posix.py",
        "system/windows.py", "server/attached/pdf.py",
    },
}  # fmt: skip

MAY_CALL = {"os.execv": {"cli/shared/streams.py"}}
"""The program may start itself again with its own arguments, in another encoding."""


def faults(nodes: Iterable[ast.AST], place: str) -> Iterator[str]:
    """What the gate refuses, with its line."""
    for node in nodes:
        for fault in (*_imports(node, place), *_names(node), *_calls(node, place)):
            yield f"{place}:{getattr(node, 'lineno', 0)}: {fault}"
        if isinstance(node, ast.Assert):
            yield f"{place}:{node.lineno}: assert (python -O leaves it out)"


def _imports(node: ast.AST, place: str) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        return
    for name in names:
        top = name.split(".")[0]
        if top in MODULES_THAT_RUN_DATA:
            yield f"imports {top}"
        if top in MAY_IMPORT and place not in MAY_IMPORT[top]:
            yield f"imports {top}, which only {sorted(MAY_IMPORT[top])} may"
        if name.startswith("builtins."):
            yield f"imports {name}"


def _names(node: ast.AST) -> Iterator[str]:
    """All names, called or not, so that `run = eval` is found as well."""
    if isinstance(node, ast.Name) and node.id in NAMES_THAT_RUN_DATA:
        yield node.id
    if isinstance(node, ast.Attribute) and node.attr in REFUSED_ATTRIBUTES:
        yield node.attr
    if isinstance(node, ast.Constant) and node.value in REFUSED_TEXTS:
        yield f"the word {node.value!r}"


def _calls(node: ast.AST, place: str) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and node.attr in LAST_NAMES and ast.unparse(node) in CALLS_THAT_RUN_DATA:
        name = ast.unparse(node)
        if place not in MAY_CALL.get(name, ()):
            yield name
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg in WORDS:
                yield f"{keyword.arg}="
            if keyword.arg == "shell" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield "shell="


def test_nothing_in_the_package_runs_data() -> None:
    assert len(MODULES) > 150
    found = [fault for path in MODULES for fault in faults(nodes_of(path), str(path.relative_to(SOURCE)))]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import cloudpickle as safe",
        "def f():\n    import dill",
        "from torch import load",
        "import multiprocessing.connection",
        "import yaml",
        "eval('1')",
        "run = eval",
        "[exec for _ in ()]",
        "getattr(builtins, 'eval')",
        "from builtins import eval as e",
        "__import__('os')",
        "compile('1', '', 'eval')",
        "import os\nos.system('x')",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "f(allow_pickle=True)",
        "f(trust_remote_code=False)",
        "AutoModel.from_pretrained(x)",
        "import subprocess",
        "f('ls', shell=True)",
        "f('ls', shell=asked)",
        "import importlib.util",
        "from ctypes import CDLL",
        "socket.recv_pyobj()",
        "class A:\n    def f(self):\n        return self.__reduce__",
        "assert user.is_admin",
    ],
)
def test_the_gate_catches(code: str) -> None:
    assert list(faults(ast.walk(ast.parse(code)), "server/app.py"))


@pytest.mark.parametrize(
    "code",
    [
        "import re\nre.compile('a')",
        "json.loads(text)",
        "model.eval_count",
        "import os\nos.path.join('a', 'b')",
        "f('ls', shell=False)",
        "raise ValueError('no compile')",
        "msgspec.json.decode(body)",
    ],
)
def test_the_gate_lets_through(code: str) -> None:
    assert not list(faults(ast.walk(ast.parse(code)), "server/app.py"))


def test_an_answer_with_a_grammar_loads_none_of_them() -> None:
    """The imports of the modules do not tell what is in the process when an answer was made.

    (pickle and multiprocessing are left out, because the standard library loads them for its own purposes.)
    """
    code = (
        "import sys\nfrom twostroke import LLM, Grammar, SamplingParams\nimport twostroke.server.app\n"
        "with LLM('spark', kv_memory='20MB', threads=1, cache='off') as llm:\n"
        "    llm.generate('a', SamplingParams(max_tokens=3, grammar=Grammar.regex('[0-9]{2}')))\n"
        "print(*sorted(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    assert not loaded & {"torch", "transformers", "dill", "cloudpickle", "joblib"}
