"""What is taken, from files, variables and flags, and what is said of anything else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.unit.settings.conftest import rows, written
from tollhouse.settings.sections import GuardrailSettings, ProviderSettings, Settings

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]
REFUSED = rows("refused.yaml")
NESTED = "is nested too deeply"


def found(settings: Any, name: str) -> Any:
    """Return a setting as it is written in the table; `*` stands for each one of a list."""
    step, _, rest = name.partition(".")
    if step == "*":
        return [found(each, rest) for each in settings]
    if not step:
        return written(settings)
    return found(settings[int(step)] if step.isdigit() else getattr(settings, step), rest)


@pytest.mark.parametrize("row", rows("taken.yaml"), ids=str)
def test_a_setting_is_taken(load_text: Load, row: list[Any]) -> None:
    text, expected, *others = row
    settings = load_text(text, *others)
    assert {name: found(settings, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("says", "given"),
    [(each["says"], given) for each in REFUSED["problems"] for given in each["given"]],
    ids=str,
)
def test_anything_else_is_told_in_a_line_for_each_problem(
    problems_of: Problems, says: list[str], given: list[Any]
) -> None:
    assert problems_of(*given) == says


def test_what_is_nested_too_deeply_is_one_clear_line(problems_of: Problems) -> None:
    assert problems_of("[" * 5_000) == [f"{NESTED}, or contains itself"]
    (problem,) = problems_of("", {"TOLLHOUSE_PROVIDERS": "[" * 100_000})
    assert problem.startswith(f"TOLLHOUSE_PROVIDERS: {NESTED}")


@pytest.mark.parametrize("wrong", REFUSED["providers"], ids=str)
def test_a_provider_that_cannot_be_called_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ProviderSettings.model_validate({"slug": "acme", "kind": "anthropic"} | wrong)


@pytest.mark.parametrize("wrong", REFUSED["guardrails"], ids=str)
def test_a_guardrail_that_cannot_be_asked_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        GuardrailSettings.model_validate({"slug": "a", "url": "https://h"} | wrong)


def test_settings_are_frozen_and_an_empty_file_gives_the_defaults(
    load_text: Load, tmp_path: Path
) -> None:
    settings = load_text("")
    assert settings == Settings(data_dir=settings.data_dir)
    assert tmp_path not in settings.data_dir.parents
    with pytest.raises(ValidationError, match="frozen"):
        settings.server.port = 1


def test_settings_built_in_code_must_be_consistent_too() -> None:
    model = {"id": "a/b", "context_length": 1, "endpoints": [{"provider": "x", "model": "m"}]}
    with pytest.raises(ValidationError, match="no provider is called 'x'"):
        Settings.model_validate({"data_dir": Path("/data"), "models": [model]})
