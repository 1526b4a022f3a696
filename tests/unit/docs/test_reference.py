from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generator_finds_its_sources_outside_of_a_test() -> None:
    code = f"import runpy; runpy.run_path({str(DOCS / 'generate.py')!r})"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_policy_page_says_what_the_code_says(generate: ModuleType) -> None:
    assert (DOCS / "reference" / "policy.md").read_text("utf-8") == generate.render_policy()


def test_the_page_of_the_resource_says_what_the_code_says(generate: ModuleType) -> None:
    page = (DOCS / "reference" / "balancedstream.md").read_text("utf-8")
    assert page == generate.render_resource()


def test_the_page_of_what_a_script_sees_has_a_row_for_each_test(generate: ModuleType) -> None:
    page = (DOCS / "what-a-script-sees.md").read_text("utf-8")
    assert page == generate.render_script()


def test_the_settings_page_says_what_the_code_says(generate: ModuleType) -> None:
    assert (DOCS / "reference" / "settings.md").read_text("utf-8") == generate.render_settings()
