"""Every setting outside of lists can be set from the environment under its name."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.settings.conftest import rows, written
from tollhouse.settings.environment import OTHER_NAMES, environment_names, setting_names
from tollhouse.settings.loader import load

VALUES: dict[str, str] = rows("names.yaml")
AS_JSON = {"TOLLHOUSE_GUARDRAILS", "TOLLHOUSE_PROVIDERS", "TOLLHOUSE_MODELS"}


def test_the_table_has_every_name() -> None:
    assert set(VALUES) | AS_JSON == set(setting_names())


def test_every_name_is_described() -> None:
    described = environment_names()
    assert {name.name for name in described} == {
        *setting_names(),
        *(other.name for other in OTHER_NAMES),
    }
    assert all(name.description and name.type and name.default for name in described)


@pytest.mark.parametrize("name", VALUES)
def test_every_setting_can_be_set_under_its_name(name: str) -> None:
    assert setting(name, {name: VALUES[name]}) == VALUES[name] != setting(name, {})


def setting(name: str, env: Mapping[str, str]) -> str:
    """Return a setting as a variable has it."""
    found: Any = load(
        config=None, env={"TOLLHOUSE_DATA_DIR": "/nonexistent/tollhouse"} | env, overrides={}
    )
    for step in setting_names()[name]:
        found = getattr(found, str(step))
    shown = written(found)
    if isinstance(shown, bool):
        return str(shown).lower()
    return ",".join(shown) if isinstance(shown, list) else str(shown)
