"""The command as a process among others. Its streams are closed, full or not text, and files cannot be read.

No case may end in a traceback, and every exit code must be a documented one.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from twostroke.assembly.settings import env

TWOSTROKE = [sys.executable, "-m", "twostroke"]
WAIT_S = 120.0


def run(*words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    if "input" in streams:
        del streams["stdin"]
    done = subprocess.run([*TWOSTROKE, *words], timeout=WAIT_S, check=False, **streams)
    text = [b"" if stream is None else stream for stream in (done.stdout, done.stderr)]
    found = [stream.decode() for stream in text]
    assert "Traceback" not in found[1] and "Exception ignored" not in found[1], found[1]
    return subprocess.CompletedProcess(done.args, done.returncode, *found)


def without(*numbers: int) -> Callable[[], None]:
    """A function for a child process, in which these descriptors are closed at its beginning."""

    def close() -> None:
        for number in numbers:
            os.close(number)

    return close


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [["--help"], ["generate", "--help"], ["generate", "hi", "--max-tokens", "3"], ["config", "--json"]]
)
def test_a_full_device_is_one_clear_error(words: list[str], unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = run(*words, stdout=full, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 1
    assert done.stderr.count("Standard output cannot be written.") == 1 and "No space left on device" in done.stderr


@pytest.mark.parametrize("numbers", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams(numbers: tuple[int, ...]) -> None:
    said = run("generate", "hi", "--max-tokens", "3", preexec_fn=without(*numbers))
    assert said.returncode == 0 and bool(said.stdout) == (1 not in numbers)
    assert run("genrate", preexec_fn=without(*numbers)).returncode == 2
    asked = run("generate", "--max-tokens", "3", input=None, stdin=None, preexec_fn=without(0))
    assert asked.returncode == 2 and "prompt is empty" in asked.stderr
    assert run("chat", stdin=None, preexec_fn=without(0)).returncode == 0


def test_a_reader_that_leaves_is_no_error() -> None:
    process = subprocess.Popen([*TWOSTROKE, "config"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait(WAIT_S)) == (b"", 0)


@pytest.mark.parametrize("locale", ["C.UTF-8", "en_US.UTF-8", "C"])
def test_input_that_is_not_text_is_an_error_that_names_its_byte(locale: str) -> None:
    done = run("generate", "--max-tokens", "3", input=b"caf\xe9", env={**os.environ, "LC_ALL": locale})
    assert done.returncode == 2
    assert "Standard input is not UTF-8 text." in done.stderr and "0xe9" in done.stderr
    chat = run("chat", "--max-tokens", "3", input=b"caf\xe9\nWhat is ITL?\n", env={**os.environ, "LC_ALL": locale})
    assert chat.returncode == 0 and "The line is not UTF-8 text." in chat.stderr
    assert len(chat.stdout) > len("spark; /help for commands.\n"), "the next line is answered"


@pytest.mark.parametrize("words", [["generate", "caf\udce9"], ["generate", "x", "--model", "\udcff"], ["\udcff"]])
def test_arguments_that_are_not_text(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2 and "is not UTF-8 text" in done.stderr


def _obey_permissions() -> None:
    """A function for a child process: it takes from root the right to read files without permission."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for capability in (1, 2):  # the numbers of CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
            libc.prctl(24, capability, 0, 0, 0)  # the number of PR_CAPBSET_DROP


@pytest.fixture
def spark_copy(tmp_path: Path) -> Path:
    from twostroke.assets import spark_path

    folder = tmp_path / "model"
    folder.mkdir()
    for each in Path(spark_path()).iterdir():
        (folder / each.name).write_bytes(each.read_bytes())
    return folder


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", ""])
def test_a_model_that_may_not_be_read_says_so(spark_copy: Path, name: str) -> None:
    (spark_copy / name).chmod(0)
    done = run("generate", "hi", "--model", str(spark_copy), preexec_fn=_obey_permissions)
    (spark_copy / name).chmod(0o700)
    assert done.returncode == 3
    assert "Permission denied." in done.stderr and "permissions" in done.stderr
    assert "Errno" not in done.stderr and "Download" not in done.stderr


@pytest.mark.parametrize(
    ("words", "needles"),
    [
        (["generate", "x", "--json-schema", "{place}"], ["--json-schema", "It is a folder."]),
        (["generate", "x", "--json-schema", "{place}/none"], ["--json-schema", "No such file", "Check the path"]),
        (["trace", "{place}"], ["It is a folder."]),
        (["simulate", "--trace", "/dev/zero", "--hardware", "h100-sxm"], ["--trace", "device"]),
    ],
)
def test_files_that_cannot_be_read(words: list[str], needles: list[str], tmp_path: Path) -> None:
    done = run(*(word.format(place=tmp_path) for word in words))
    assert done.returncode == 2 and "Errno" not in done.stderr
    assert all(needle in done.stderr for needle in needles), done.stderr


@pytest.mark.parametrize(
    ("words", "code", "needles"),
    [
        (["genrate", "hi"], 2, ["Did you mean 'generate'?"]),
        (["start"], 2, ["Did you mean 'serve'?"]),
        (["compare"], 2, ["Did you mean 'bench compare'?"]),
        (["bench", "swep"], 2, ["Did you mean 'sweep'?"]),
        (["bench", "peers", "instal", "vllm"], 2, ["Did you mean 'install'?"]),
        (["xyzzy"], 2, ["There are serve, front,"]),
        (["pull", "mistral:7b"], 3, ["Did you mean", "ministral-3:8b"]),
        (["serve", "qwen3:0.7b"], 3, ["Did you mean", "qwen3:0.6b"]),
        (["chat", "sparc"], 3, ["'spark'"]),
        (["generate", "x", "--kv-memory", "1"], 4, ["1 byte", "one page", "without a unit means bytes"]),
        (["generate", "x", "--cpu-level", "neon"], 5, ["neon"]),
        (["bench", "compare", "--peers", "nonsense", "--model", "/nowhere"], 2, ["No peer is called 'nonsense'"]),
    ],
)
def test_what_was_probably_meant(words: list[str], code: int, needles: list[str]) -> None:
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert all(needle in done.stderr for needle in needles), done.stderr


def test_the_embedded_model_needs_no_download() -> None:
    done = run("pull", "spark")
    assert done.returncode == 0 and "nothing to download" in done.stdout
    found = json.loads(run("pull", "spark", "--json").stdout)
    assert (Path(found["path"]) / "config.json").is_file()


def test_a_level_that_this_cpu_lacks_is_named_with_those_it_runs() -> None:
    from twostroke.backends.cpu import LEVELS

    level = LEVELS[1]  # this works whether the level is built here or not
    code = "import sys, twostroke.backends.cpu.library as library\nlibrary.runnable_levels = lambda: ['generic']\n"
    code += "library.load_library = lambda level: None\nlibrary.built_levels = lambda: ['generic']\n"
    code += "from twostroke.cli.start import run\nrun()"
    done = subprocess.run(
        [sys.executable, "-c", code, "generate", "x", "--cpu-level", level], capture_output=True, text=True, check=False
    )
    assert done.returncode == 5
    assert f"This CPU cannot run the {level} kernels." in done.stderr and "it runs generic" in done.stderr


@pytest.mark.daily
def test_chat_in_json_is_one_document_a_line() -> None:
    done = run("chat", "--json", "--max-tokens", "4", input=b"What is ITL?\n/stats\n/exit\n")
    answer, note = (json.loads(line) for line in done.stdout.splitlines())
    assert answer["answer"] and answer["finish_reason"] == "length" and answer["num_output_tokens"] == 4
    assert "TTFT" in note["note"]


def _verbs(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    import click

    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from _verbs(command, (*words, name))
        else:
            yield (*words, name), command


def test_everything_that_prints_has_json() -> None:
    from twostroke.cli.main import main

    lacking = [words for words, command in _verbs(main) if "--json" not in {o for p in command.params for o in p.opts}]
    assert lacking == []


LOOP = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


@pytest.mark.daily
@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="the system does not count it")
def test_explain_names_a_processor_that_was_busy_with_something_else() -> None:
    core = min(os.sched_getaffinity(0))

    def on_one_core() -> None:
        os.sched_setaffinity(0, {core})

    other = subprocess.Popen([sys.executable, "-c", LOOP], preexec_fn=on_one_core)
    try:
        words = ["generate", "x", "--regex", "[a-z ]{600}", "--max-tokens", "300", "--explain", "--json"]
        done = run(*words, preexec_fn=on_one_core)
    finally:
        other.kill()
        other.wait()
    (told,) = json.loads(done.stdout)["explain"]
    busy = {cause["kind"]: cause for cause in told["causes"]}["busy processor"]
    assert "the processor was busy with something else" in busy["text"] and busy["seconds"] > 0.05 * told["e2e_s"]


def bare(**more: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}, **more}


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.daily
def test_arguments_and_paths_are_utf8_in_a_locale_of_ascii(tmp_path: Path) -> None:
    place = tmp_path / "ä\U0001f980"
    done = run("generate", "Sage é", "--max-tokens", "2", "--trace", str(place), env=bare(**ASCII))
    assert done.returncode == 0 and place.is_file(), done.stderr
    assert run("generate", b"\xff".decode("utf-8", "surrogateescape"), env=bare(**ASCII)).returncode == 2


def test_what_an_output_cannot_write_is_escaped() -> None:
    words = ("generate", "Say", "--regex", "\\x{1F600}")
    done = run(*words, env=bare(PYTHONIOENCODING="latin-1"))
    assert done.returncode == 0 and "\\U0001f600" in done.stdout, done.stderr


@pytest.mark.daily
@pytest.mark.parametrize("width", ["1", "7", "20"])
@pytest.mark.parametrize("words", [["--help"], ["serve", "--help"], ["config"], ["kernels"]])
def test_narrow_terminals(words: list[str], width: str) -> None:
    done = run(*words, env=bare(COLUMNS=width, LINES="2"))
    assert done.returncode == 0 and done.stdout


def test_a_user_that_has_no_home(tmp_path: Path) -> None:
    """Containers run with an id that has no entry in passwd, and without HOME."""
    program = (
        "import os, pwd, sys\n"
        "def nobody(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = nobody\n"
        "from twostroke.cli.start import run\n"
        "sys.argv = ['twostroke', 'generate', 'hi', '--max-tokens', '2']\n"
        "try:\n run()\n"
        "finally: print(os.environ['HOME'])\n"
    )
    environment = {name: value for name, value in bare(TMPDIR=str(tmp_path)).items() if name != "HOME"}
    for name in ("TWOSTROKE_CACHE", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    work = tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-c", program]
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": WAIT_S, "check": False}
    done = subprocess.run(command, cwd=work, env=environment, **how)
    home = Path(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and not list(work.iterdir()), done.stderr
    assert home.parent == tmp_path and home.stat().st_mode & 0o777 == 0o700 and (home / ".cache/twostroke").is_dir()


def test_a_home_that_another_user_could_have_made_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / f"twostroke-home-{os.getuid()}"
    theirs.mkdir(mode=0o700)
    theirs.chmod(0o777)
    monkeypatch.setattr(env.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(env.os.path, "expanduser", lambda path: path)
    monkeypatch.setenv("HOME", "")
    env.settle_home()
    assert os.environ["HOME"] != str(theirs) and Path(os.environ["HOME"]).stat().st_mode & 0o777 == 0o700
