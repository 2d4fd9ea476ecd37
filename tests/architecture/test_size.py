"""No source file has more than 600 lines."""

from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
MOST_LINES = 600


def test_no_source_file_is_too_long() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert lines
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}
