"""A setting has one default: where the value that a setting becomes has one, the key takes it from there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "packages"


def literal(node: ast.expr | None) -> object:
    """The text of a literal default; None for one that stands elsewhere, and for those that mean nothing is set."""
    try:
        value = None if node is None else ast.literal_eval(node)
    except ValueError:
        return None
    return None if value in (None, False, (), "") else repr(value)


def attributes() -> Iterator[tuple[str, str, ast.expr | None]]:
    """The annotated attributes of all classes: distribution and class, name, and default."""
    for path in sorted(SOURCES.glob("*/src/**/*.py")):
        distribution = path.relative_to(SOURCES).parts[0]
        classes = [found for found in ast.walk(ast.parse(path.read_text())) if isinstance(found, ast.ClassDef)]
        for found in classes:
            for line in found.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield f"{distribution} {found.name}", line.target.id, line.value


def test_no_value_repeats_the_default_of_a_key() -> None:
    keys, values = [], []
    for owner, name, default in attributes():
        if owner.endswith(("Keys", "Options")) and isinstance(default, ast.Call):
            keys.append((owner.split()[0], name, literal(default.args[0] if default.args else None)))
        else:
            values.append((owner, name, literal(default)))
    twins = [
        f"{owner}.{name} repeats {key} = {default}"
        for owner, name, value in values
        for distribution, key, default in keys
        if owner.startswith(f"{distribution} ") and f"_{key}".endswith(f"_{name}")
        if default is not None and default == value
    ]
    assert not twins, "\n".join(twins)
