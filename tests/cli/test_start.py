"""What importing costs: nothing heavy is loaded before it is used. (Times are measured, not asserted: docs/LOG.md.)"""

from __future__ import annotations

import subprocess
import sys

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


def loaded_after(code: str) -> set[str]:
    text = f"import sys\n{code}\nprint(' '.join(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60)
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


def test_public_names_are_all_there():
    import twostroke

    assert all(getattr(twostroke, name) is not None for name in twostroke.__all__)
