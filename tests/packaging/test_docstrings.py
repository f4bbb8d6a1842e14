"""Docstrings start with a verb in the imperative or a noun phrase, never with a question word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("graphbox", "compress", "deploy", "server", "tests", "benchmarks", "examples")
QUESTION = re.compile(r"(What|Which|Whose|How|Who)\b")


def question_lines(source: str) -> Iterator[int]:
    """Yield the lines of docstrings, those of attributes included, that start with a question word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str) and QUESTION.match(text.lstrip()):
                yield node.lineno


def test_no_docstring_starts_with_a_question_word() -> None:
    paths = [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py*"))
        if path.suffix in {".py", ".pyi"}
    ]
    assert {path.relative_to(ROOT).parts[0] for path in paths} == set(FOLDERS)
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in paths for line in question_lines(path.read_text())
    ]
    assert not found, "expected docstrings that start with a verb or a noun, as in `Number of rows.`"


def test_each_kind_of_docstring_is_read() -> None:
    source = '''"""What it holds."""
LIMIT = 1
"""How many rows fit."""
class Rows:
    """
    Which rows are there.
    """
    size: int = 0
    r"""Whose size."""
    async def read(self):
        """Who reads."""
def count():
    """Whatever is counted."""
    return "What a row holds."
'''
    assert sorted(question_lines(source)) == [1, 3, 5, 9, 11]
