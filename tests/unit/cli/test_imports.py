"""What every command loads: nothing heavy, or `tollhouse serve` starts late."""

import subprocess
import sys

HEAVY = (
    "acp",
    "alembic",
    "asyncpg",
    "fastapi",
    "httpx2",
    "pydantic",
    "rich",
    "sqlalchemy",
    "uvicorn",
)


def test_the_command_line_loads_no_heavy_library() -> None:
    code = f"import sys, tollhouse.cli.program; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
