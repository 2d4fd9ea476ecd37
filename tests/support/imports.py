"""What a Python file imports."""

import ast
from collections.abc import Iterator


def imports_of(source: str) -> Iterator[str]:
    """Return the modules and names that it imports, also those that only a type checker sees."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{name.name}" for name in node.names)
