"""Tests import the names of a slice from its seam file: a rename changes that file alone."""

from pathlib import Path

import pytest

from tests.support.imports import imports_of

TESTS = Path(__file__).parents[1]
SEAMS = TESTS / "support" / "seams"
KEPT = ("accounting", "api", "batches", "identity", "inference")
"""The slices whose tests keep to the seam. One that is rebuilt joins them."""
PROGRAMS = {TESTS / "support" / name for name in ("chat_tee.py", "forked.py", "reply_tee.py")}
"""These are run as the product, or in its place."""


def past_the_seam(source: str) -> list[str]:
    """Return the imports that belong into a seam file."""
    slices = tuple(f"tollhouse.{name}." for name in KEPT)
    return [name for name in imports_of(source) if f"{name}.".startswith(slices)]


def test_names_of_a_slice_come_from_its_seam() -> None:
    found = {
        str(file.relative_to(TESTS)): names
        for file in TESTS.rglob("*.py")
        if SEAMS not in file.parents and file not in PROGRAMS
        if (names := past_the_seam(file.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize("name", KEPT)
def test_each_slice_has_its_seam(name: str) -> None:
    assert SEAMS.joinpath(f"{name}.py").exists()


@pytest.mark.parametrize(
    "planted",
    [
        "import tollhouse.accounting.pricing",
        "from tollhouse import inference",
        "from tollhouse.batches import repository",
        "if TYPE_CHECKING:\n    from tollhouse.identity.types import Subject",
    ],
)
def test_a_planted_import_is_found(planted: str) -> None:
    assert past_the_seam(planted)
