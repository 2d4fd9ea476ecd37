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


def test_names_without_the_prefix_are_nobodys_business(load_text: Load) -> None:
    assert load_text("", {"TOLLHOUSES": "x", "PORT": "1"}).server.port == 8080


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
