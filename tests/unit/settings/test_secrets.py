"""No secret leaves the settings by any way but `reveal`."""

import json
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.unit.settings.conftest import rows
from tollhouse.settings.description import masked
from tollhouse.settings.loader import load
from tollhouse.settings.problems import ConfigError
from tollhouse.settings.sections import Settings

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]

SECRET = "hush-hush"
TEXT = f"""
database_url: postgresql://tollhouse:{SECRET}@db.example/tollhouse?sslpassword={SECRET}
guardrails:
  - slug: privacy
    url: https://guard.example/judge
    headers: {{Authorization: Bearer {SECRET}}}
providers:
  - slug: acme
    kind: openai_compatible
    base_url: https://llm.acme.example/v1
    api_key: {SECRET}
    headers: {{X-Team: {SECRET}}}
    proxy: http://{SECRET}:{SECRET}@proxy.example:3128
"""


@pytest.fixture
def settings(load_text: Load) -> Settings:
    return load_text(TEXT)


@pytest.mark.parametrize("way", [repr, str, masked, Settings.model_dump, Settings.model_dump_json])
def test_no_text_of_the_settings_shows_a_secret(
    settings: Settings, way: Callable[[Settings], object]
) -> None:
    assert SECRET not in str(way(settings))


def test_the_secrets_are_there_all_the_same(settings: Settings) -> None:
    provider = settings.providers[0]
    assert provider.api_key is not None
    assert provider.proxy is not None
    assert provider.api_key.reveal() == provider.headers["X-Team"].reveal() == SECRET
    assert provider.proxy.reveal() == f"http://{SECRET}:{SECRET}@proxy.example:3128"
    assert settings.guardrails[0].headers["Authorization"].reveal() == f"Bearer {SECRET}"


def test_masked_settings_are_json_and_keep_the_rest(settings: Settings) -> None:
    shown = json.loads(json.dumps(masked(settings)))
    assert shown["database_url"] == (
        "postgresql://tollhouse:********@db.example/tollhouse?sslpassword=********"
    )
    assert shown["providers"][0]["proxy"] == "http://********@proxy.example:3128"
    assert shown["guardrails"][0]["headers"] == {"Authorization": "********"}
    assert shown["providers"][0]["headers"] == {"X-Team": "********"}
    assert shown["providers"][0]["base_url"] == "https://llm.acme.example/v1"


@pytest.mark.parametrize("password", ["a@b", "a/b", "a:b", "a?b", "a#b"])
def test_a_password_that_was_not_quoted_is_masked_whole(load_text: Load, password: str) -> None:
    settings = load_text(f'database_url: "postgresql://u:{password}@db.example/x"')
    assert masked(settings)["database_url"] == "postgresql://u:********@db.example/x"


@pytest.mark.parametrize("text", rows("refused.yaml")["secrets"])
def test_no_error_shows_what_was_given(problems_of: Problems, text: str) -> None:
    problems = problems_of(text.replace("SECRET", SECRET))
    assert problems
    assert SECRET not in "\n".join(problems)


@hypothesis_settings(deadline=None)
@given(key=st.text(alphabet=st.characters(codec="utf-8"), min_size=8, max_size=30))
def test_no_error_shows_a_key_whatever_it_looks_like(key: str) -> None:
    assume(key not in error_about("another key"))  # some of our own words
    assert key not in error_about(key)


def error_about(key: str) -> str:
    """Return what is said of settings that are wrong wherever they hold a key."""
    provider = {"slug": "a", "kind": "anthropic", "api_key": key, "nonsense": key}
    env = {"TOLLHOUSE_PROVIDERS": json.dumps([provider]), "TOLLHOUSE_DATABASE_URL": f"x:{key}"}
    with pytest.raises(ConfigError) as caught:
        load(config=None, env=env, overrides={"data_dir": "/nonexistent"})
    return str(caught.value)
