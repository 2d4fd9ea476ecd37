from collections.abc import Callable
from decimal import Decimal

import pytest

from tollhouse.settings.sections import Settings

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]


def test_an_empty_variable_counts_as_not_set(load_text: Load) -> None:
    settings = load_text("server: {port: 9000}", {"TOLLHOUSE_SERVER__PORT": ""})
    assert settings.server.port == 9000


@pytest.mark.parametrize(
    "text", ["http://a,http://b", " http://a , http://b,", '["http://a", "http://b"]']
)
def test_a_list_is_json_or_separated_by_commas(load_text: Load, text: str) -> None:
    settings = load_text("", {"TOLLHOUSE_SERVER__CORS_ORIGINS": text})
    assert settings.server.cors_origins == ("http://a", "http://b")


def test_an_empty_list_is_written_as_json(load_text: Load) -> None:
    env = {"TOLLHOUSE_SERVER__CORS_ORIGINS": "[]"}
    assert load_text("server: {cors_origins: ['http://a']}", env).server.cors_origins == ()


def test_providers_and_models_are_json(load_text: Load) -> None:
    env = {
        "TOLLHOUSE_PROVIDERS": '[{"slug": "a", "kind": "anthropic"}]',
        "TOLLHOUSE_MODELS": """[{"id": "a/b", "context_length": 1, "endpoints": [
            {"provider": "a", "model": "m", "pricing": {"prompt": "1e-6", "completion": 0}}]}]""",
    }
    settings = load_text("", env)
    pricing = settings.models[0].endpoints[0].pricing
    assert pricing not in {None, "free"}
    assert pricing.prompt == Decimal("0.000001")


def test_a_list_of_providers_replaces_that_of_the_file(load_text: Load) -> None:
    env = {"TOLLHOUSE_PROVIDERS": '[{"slug": "b", "kind": "anthropic"}]'}
    settings = load_text("providers: [{slug: a, kind: simulated}]", env)
    assert [provider.slug for provider in settings.providers] == ["b", "simulated"]


def test_a_problem_inside_of_a_variable_names_the_way_from_it(problems_of: Problems) -> None:
    env = {"TOLLHOUSE_PROVIDERS": '[{"slug": "a", "kind": "anthropic", "head_seconds": 0}]'}
    assert problems_of("", env) == ["TOLLHOUSE_PROVIDERS[0].head_seconds: must be more than 0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{]", "must be a list in JSON: line 1, column 3: "),
        ('{"a": 1}', "must be a list"),
        ('[{"slug": "a", "slug": "b"}]', "'slug' is there twice in one object"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_providers_that_are_no_list_are_one_clear_line(
    problems_of: Problems, text: str, message: str
) -> None:
    (problem,) = problems_of("", {"TOLLHOUSE_PROVIDERS": text})
    assert problem.startswith(f"TOLLHOUSE_PROVIDERS: {message}")


def test_a_problem_of_a_variable_names_the_variable(problems_of: Problems) -> None:
    env = {"TOLLHOUSE_SERVER__PORT": "http"}
    assert problems_of("server: {port: 80}", env) == [
        "TOLLHOUSE_SERVER__PORT: must be a whole number"
    ]


def test_a_section_that_is_no_mapping_stays_a_problem_of_the_file(problems_of: Problems) -> None:
    assert problems_of("server: [1]", {"TOLLHOUSE_SERVER__PORT": "80"}) == [
        "server: must be a mapping of names to values"
    ]


@pytest.mark.parametrize(
    "name",
    ["TOLLHOUSE_BASE_URL", "TOLLHOUSE_API_KEY", "TOLLHOUSE_TEST_DATABASE_URL", "TOLLHOUSE_TEST_X"],
)
def test_names_of_the_command_line_and_of_tests_are_known(load_text: Load, name: str) -> None:
    assert load_text("", {name: "x"}).server.port == 8080


def test_what_kubernetes_writes_about_a_service_of_our_name_is_no_mistake(load_text: Load) -> None:
    env = {
        "TOLLHOUSE_SERVICE_HOST": "10.0.0.11",
        "TOLLHOUSE_SERVICE_PORT": "80",
        "TOLLHOUSE_SERVICE_PORT_HTTP": "80",
        "TOLLHOUSE_PORT": "tcp://10.0.0.11:80",
        "TOLLHOUSE_PORT_80_TCP": "tcp://10.0.0.11:80",
        "TOLLHOUSE_PORT_80_TCP_ADDR": "10.0.0.11",
    }
    assert load_text("", env).server.port == 8080


def test_a_port_under_a_wrong_name_is_a_mistake_without_such_a_service(
    problems_of: Problems,
) -> None:
    (problem,) = problems_of("", {"TOLLHOUSE_PORT": "9000"})
    assert problem.startswith("TOLLHOUSE_PORT: there is no such variable")


Load = Callable[..., Settings]
KEYS = {"OPENAI_API_KEY": "sk-12345", "ANTHROPIC_API_KEY": "sk-ant-1"}


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
    assert openai.api_key.reveal() == "sk-12345"
    assert "sk-12345" not in repr(openai)


def test_other_settings_of_a_file_do_not_hide_them(load_text: Load) -> None:
    assert len(load_text("server: {port: 1}", KEYS).providers) == 3


def test_configured_providers_stay_alone(load_text: Load) -> None:
    configured = load_text("providers: [{slug: mine, kind: simulated}]", KEYS).providers
    assert [provider.slug for provider in configured] == ["mine"]


Problems = Callable[..., list[str]]

PRICING = "models[0].endpoints[0].pricing"
MODEL = """
models:
  - {id: a/b, context_length: 1, endpoints: [{provider: simulated, model: m, FIELD}]}
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("servr: {}", "servr: there is no such setting; the nearest is 'server'"),
        ("server: {prot: 1}", "server.prot: there is no such setting; the nearest is 'port'"),
        ("server: {prot: }", "server.prot: there is no such setting; the nearest is 'port'"),
        (
            "providers: [{slug: a, kind: anthropic, apikey: k}]",
            "providers[0].apikey: there is no such setting; the nearest is 'api_key'",
        ),
        (
            MODEL.replace("FIELD", "pricng: free"),
            "models[0].endpoints[0].pricng: there is no such setting; the nearest is 'pricing'",
        ),
        (
            MODEL.replace("FIELD", "pricing: {prompt: 0, completion: 0, cache_read: 0}"),
            f"{PRICING}.cache_read: there is no such setting; the nearest is 'input_cache_read'",
        ),
    ],
)
def test_an_unknown_key_is_named_with_its_path_and_the_nearest(
    problems_of: Problems, text: str, line: str
) -> None:
    assert problems_of(text) == [line]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TOLLHOUSE_SERVER_PORT", "TOLLHOUSE_SERVER__PORT"),
        ("TOLLHOUSE_DATADIR", "TOLLHOUSE_DATA_DIR"),
        ("TOLLHOUSE_CONFIG_FILE", "TOLLHOUSE_CONFIG"),
        ("TOLLHOUSE_APIKEY", "TOLLHOUSE_API_KEY"),
        ("TOLLHOUSE_TESTS", None),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest(
    problems_of: Problems, name: str, near: str | None
) -> None:
    (problem,) = problems_of("", {name: "x"})
    assert problem.startswith(f"{name}: there is no such variable; the nearest is ")
    assert near is None or problem.endswith(near)


def test_all_problems_are_reported_together(problems_of: Problems) -> None:
    text = """
server: {prot: 1, port: x, host: "${NOWHERE}"}
providers: [{slug: a, slug: b, kind: c}]
models: [{id: a/b, context_length: 0, endpoints: [{provider: z, model: m}]}]
"""
    env = {"TOLLHOUSE_LOGGING__LEVEL": "loud", "TOLLHOUSE_NONSENSE": "1"}
    places = {line.partition(": ")[0] for line in problems_of(text, env)}
    assert places == {
        "line 3, column 23",
        "server.host",
        "server.port",
        "server.prot",
        "TOLLHOUSE_LOGGING__LEVEL",
        "providers[0].kind",
        "models[0].context_length",
        "models[0].endpoints[0].provider",
        "TOLLHOUSE_NONSENSE",
    }
