"""Past 600 lines a file has taken in a second subject."""

from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
MOST_LINES = 600


def test_no_source_file_has_two_subjects() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert lines
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}
