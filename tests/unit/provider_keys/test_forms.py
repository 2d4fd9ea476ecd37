"""What is taken as a provider's key, how it is shown, and what its provider is shown of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tollhouse.kernel.errors import Invalid
from tollhouse.provider_keys.policy import LONGEST, check_key, label_of, single_text

SECRET = "sk-proj-0123456789abcdef"
ROWS = yaml.safe_load(Path(__file__).with_name("forms.yaml").read_text())


def written(key: str | dict[str, str]) -> str:
    return key if isinstance(key, str) else json.dumps(key)


@pytest.mark.parametrize(("provider", "key", "label", "shown"), ROWS["taken"])
def test_a_key_of_its_providers_form_is_taken(
    provider: str, key: str | dict[str, str], label: str, shown: str | None
) -> None:
    check_key(provider, written(key))
    assert (label_of(provider, written(key)), single_text(written(key))) == (label, shown)


TOO_LONG = ("groq", "x" * (LONGEST + 1), "8 to 32768 characters")


@pytest.mark.parametrize(("provider", "key", "told"), [*ROWS["refused"], TOO_LONG])
def test_another_is_refused_and_not_repeated(
    provider: str, key: str | dict[str, str], told: str
) -> None:
    with pytest.raises(Invalid) as refused:
        check_key(provider, written(key))
    assert told in refused.value.message
    assert SECRET not in refused.value.message
