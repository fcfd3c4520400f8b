"""What imports cost: no large module is loaded before it is used. (Times are measured, not asserted.)"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.weights.gguf.export import write_gguf
from twostroke.assembly import optional
from twostroke.assets import spark_path
from twostroke.models.common.homes import HOMES
from twostroke.models.common.registry import architectures

HEAVY = (
    "numpy",
    "torch",
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "starlette",
    "uvicorn",
    "rich",
    "jinja2",
    "msgspec",
    "llguidance",
)


MOST_MODULES = 850
"""The package's modules in a server of one text model; each takes half a millisecond of a start. Raise it only with a
reason: 23 came with folders of under 20 files and files of one subject, and seven starts in turn took as long.
"""

GGUF_START = """
from twostroke import LLM, SamplingParams
from twostroke.weights.gguf import container
parse, parsed = container.parse_header, []
container.parse_header = lambda reader: parsed.append(reader.place) or parse(reader)
with LLM(sys.argv[1], cache=sys.argv[2], context=64, kv_memory="8MB") as llm:
    assert len(llm.generate([[3, 4, 5]], SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True))) == 1
assert parsed == [sys.argv[1].rpartition("/")[2]], parsed
"""


def loaded_after(code: str, *words: str) -> set[str]:
    text = f"import sys\n{code}\nprint(' '.join(sorted(sys.modules)))"
    command = [sys.executable, "-c", text, *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_after("import twostroke").intersection(HEAVY)


def test_help_loads_nothing_heavy():
    code = (
        "from click.testing import CliRunner\nfrom twostroke.cli.main import main\nCliRunner().invoke(main, ['--help'])"
    )
    assert not loaded_after(code).intersection(HEAVY)


def test_the_runtime_needs_no_training_stack():
    code = "import twostroke.llm, twostroke.server.app, twostroke.cli.server.serve, twostroke.assembly.engine"
    assert not loaded_after(code).intersection({"torch", "transformers", "safetensors"})


def test_the_grammar_library_is_loaded_with_the_first_grammar():
    assert "llguidance" not in loaded_after(
        "import twostroke.server.app, twostroke.assembly.engine, twostroke.cli.server.serve"
    )


def test_a_start_of_a_gguf_file_reads_its_header_once_and_loads_its_model_file_alone(tmp_path: Path) -> None:
    """The packed file and the folder do not exist at this start. A later start does less."""
    bare = shutil.copytree(spark_path(), tmp_path / "bare", ignore=shutil.ignore_patterns("chat_template.jinja"))
    path = write_gguf(bare, tmp_path / "spark.gguf", "llama")
    loaded = loaded_after(GGUF_START, str(path), str(tmp_path / "cache"))
    homes = {f"twostroke.models.{home}" for home in HOMES.values()}
    assert homes & loaded == {"twostroke.models.llama"}
    lazy = {each._name for each in vars(optional).values() if isinstance(each, optional.LazyModule)}
    assert len(lazy) > 20
    assert lazy & loaded == set()
    others = {"twostroke.weights.quantized.schemes", "twostroke.weights.hub.resume"}
    assert not loaded & {*HEAVY, *others} - {"numpy", "tokenizers", "msgspec"}


FIRST_START_ONLY = (
    "twostroke.weights.gguf.members",
    "twostroke.weights.gguf.vocabulary",
    "twostroke.weights.vocabularies.sentencepiece",
    "twostroke.weights.vocabularies.rank_files",
    "twostroke.weights.packed.numpy_packer",
)
"""Modules that make the small files of a GGUF file's folder, vocabularies, or packed weights without kernels."""
SERVER = """
from twostroke.server.build import build_server
import twostroke.server.serve
with build_server(sys.argv[1], {"cache": sys.argv[2], "context": 64, "kv_memory": "8MB"}) as built:
    assert built.parts.serving.engine is not None
"""


def test_a_later_start_of_a_server_imports_nothing_that_only_the_first_one_needs(tmp_path: Path) -> None:
    path, cache = write_gguf(spark_path(), tmp_path / "spark.gguf", "llama"), tmp_path / "cache"
    loaded_after(GGUF_START, str(path), str(cache))
    loaded = loaded_after(SERVER, str(path), str(cache))
    assert not loaded.intersection(FIRST_START_ONLY)
    assert "twostroke.weights.gguf.families.table" in loaded, "which a folder's start does without"
    assert "twostroke.weights.gguf.families.table" not in loaded_after(SERVER, str(spark_path()), str(cache))
    assert sum(name.startswith("twostroke.") for name in loaded) < MOST_MODULES


def test_the_table_of_model_files_names_each_architecture() -> None:
    """`make docs` writes the table. Without it, a start imports all model files."""
    assert {name: f"twostroke.models.{home}" for name, home in HOMES.items()} == {
        name: entry.read.__module__ for name, entry in architectures().items()
    }


def test_public_names_are_all_there():
    import twostroke

    assert all(getattr(twostroke, name) is not None for name in twostroke.__all__)
