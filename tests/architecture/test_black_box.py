"""What tests may import: those from outside nothing of the product."""

from pathlib import Path

import pytest

from tests.support.imports import imports_of

TESTS = Path(__file__).parents[1]
FROM_OUTSIDE = ("acceptance", "contract", "faults")
INSIDE = ("tollhouse", "tests.component", "tests.unit", "tests.support.seams")


def insides_of(source: str) -> list[str]:
    return [
        name
        for name in imports_of(source)
        if any(f"{name}.".startswith(f"{inside}.") for inside in INSIDE)
    ]


def test_tests_from_outside_import_nothing_of_the_product() -> None:
    found = {
        str(file.relative_to(TESTS)): insides
        for folder in FROM_OUTSIDE
        for file in (TESTS / folder).rglob("*.py")
        if (insides := insides_of(file.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "planted",
    [
        "import tollhouse",
        "from tollhouse.kernel import money",
        "if TYPE_CHECKING:\n    from tollhouse.kernel.money import Nano",
        "def test() -> None:\n    from tests.unit.accounting import fixtures",
        "from tests.support import seams",
    ],
)
def test_a_planted_import_is_found(planted: str) -> None:
    assert insides_of(planted)
