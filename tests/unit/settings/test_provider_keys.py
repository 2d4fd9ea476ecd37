from collections.abc import Callable

from tollhouse.settings.sections import Settings

Load = Callable[..., Settings]
KEYS = {"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-ant-1"}


def test_keys_in_the_environment_are_providers_with_all_their_models(load_text: Load) -> None:
    openai, anthropic, _ = load_text("", KEYS).providers
    assert (openai.slug, openai.kind, openai.base_url) == (
        "openai",
        "openai_compatible",
        "https://api.openai.com/v1",
    )
    assert (anthropic.slug, anthropic.kind) == ("anthropic", "anthropic")
    assert openai.list_models
    assert anthropic.list_models
    assert openai.api_key is not None
    assert openai.api_key.reveal() == "sk-1"
    assert "sk-1" not in repr(openai)


def test_an_empty_key_is_none(load_text: Load) -> None:
    assert load_text("", {"OPENAI_API_KEY": " "}).providers == load_text("").providers


def test_other_settings_of_a_file_do_not_hide_them(load_text: Load) -> None:
    assert len(load_text("server: {port: 1}", KEYS).providers) == 3


def test_configured_providers_stay_alone(load_text: Load) -> None:
    configured = load_text("providers: [{slug: mine, kind: simulated}]", KEYS).providers
    assert [provider.slug for provider in configured] == ["mine"]
