"""`docs/reference/configuration.md` has a row for every setting and for every environment name.

A failure lists the rows that are missing; put them into the table of their section.
"""

import re
from pathlib import Path

from tollhouse.settings.description import described
from tollhouse.settings.environment import (
    OTHER_NAMES,
    TEST_PREFIX,
    environment_name,
    environment_names,
)
from tollhouse.settings.loader import load

GUIDE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


def rows() -> list[str]:
    settings = [
        " | ".join(
            [
                f"| `{setting.path}`",
                *([f"`{environment_name(setting.location)}`"] if setting.in_environment else []),
                setting.type,
                setting.default,
                f"{setting.description} |",
            ]
        )
        for setting in described()
    ]
    others = [f"| `{other[0]}` | {' | '.join(other[1:])} |" for other in OTHER_NAMES]
    return settings + others


def test_every_setting_has_its_row() -> None:
    written = GUIDE.read_text(encoding="utf-8").splitlines()
    missing = [row for row in rows() if row not in written]
    assert not missing, "\n".join(["rows missing in the guide:", *missing])


def test_no_row_is_about_a_setting_that_does_not_exist() -> None:
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    written = [line for line in lines if line.startswith("| `")]
    assert sorted(written) == sorted(rows())


def test_every_environment_name_is_there() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    names = [*(name.name for name in environment_names()), TEST_PREFIX]
    assert [name for name in names if name not in text] == []


def test_the_example_loads(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    file = tmp_path / "tollhouse.yaml"
    file.write_text(example[1], encoding="utf-8")
    settings = load(config=file, env={"ACME_KEY": "sk-acme-key"}, overrides={})
    assert [model.id for model in settings.models] == ["acme/large"]
