from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from tollhouse.settings.sections import Settings

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]

MODEL = "{id: a/b, context_length: 1, endpoints: [{provider: PROVIDER, model: m}]}"


def test_a_slug_is_taken_once(problems_of: Problems) -> None:
    text = "providers: [{slug: a, kind: anthropic}, {slug: a, kind: simulated}]"
    assert problems_of(text) == ["providers[1].slug: 'a' is taken already, by providers[0].slug"]


def test_a_guardrail_s_slug_is_taken_once(problems_of: Problems) -> None:
    guardrail = "{slug: a, url: 'http://guard.example'}"
    assert problems_of(f"guardrails: [{guardrail}, {guardrail}]") == [
        "guardrails[1].slug: 'a' is taken already, by guardrails[0].slug"
    ]


def test_a_model_id_is_taken_once(problems_of: Problems) -> None:
    model = MODEL.replace("PROVIDER", "simulated")
    assert problems_of(f"models: [{model}, {model}]") == [
        "models[1].id: 'a/b' is taken already, by models[0].id"
    ]


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("[c]", "[c]", "models[1].aliases[0]: 'c' is taken already, by models[0].aliases[0]"),
        ("[c, c]", "[]", "models[0].aliases[1]: 'c' is taken already, by models[0].aliases[0]"),
        ("[x/y]", "[]", "models[0].aliases[0]: 'x/y' is taken already, by models[1].id"),
    ],
)
def test_an_alias_is_no_other_models_name(
    problems_of: Problems, first: str, second: str, problem: str
) -> None:
    one = MODEL.replace("PROVIDER", "simulated")[:-1] + f", aliases: {first}}}"
    two = one.replace("a/b", "x/y").replace(first, second)
    assert problems_of(f"models: [{one}, {two}]") == [problem]


@pytest.mark.parametrize("alias", ["a b", "a/b/c", "/a", "'a/'", "''"])
def test_an_alias_is_a_name_that_a_model_can_have(problems_of: Problems, alias: str) -> None:
    model = MODEL.replace("PROVIDER", "simulated")[:-1] + f", aliases: [{alias}]}}"
    (problem,) = problems_of(f"models: [{model}]")
    assert problem.startswith("models[0].aliases[0]: ")


def test_an_endpoint_names_a_provider_that_exists(problems_of: Problems) -> None:
    providers = "[{slug: acme, kind: anthropic}, {slug: other, kind: simulated}]"
    text = f"providers: {providers}\nmodels: [{MODEL.replace('PROVIDER', 'acmee')}]"
    assert problems_of(text) == [
        "models[0].endpoints[0].provider: no provider is called 'acmee'; the nearest is 'acme'"
    ]


def test_the_simulated_provider_is_there_when_none_is_listed(load_text: Load) -> None:
    settings = load_text(f"models: [{MODEL.replace('PROVIDER', 'simulated')}]")
    assert settings.models[0].endpoints[0].provider == "simulated"


@pytest.mark.parametrize("others", ["", "providers: [{slug: a, kind: anthropic}]\n"])
def test_the_simulated_provider_is_there_beside_others(load_text: Load, others: str) -> None:
    model = MODEL.replace("PROVIDER", "simulated")
    providers = load_text(f"{others}models: [{model}]").providers
    assert (providers[-1].slug, providers[-1].kind) == ("simulated", "simulated")


@pytest.mark.parametrize(
    "configured", ["{slug: simulated, kind: anthropic}", "{slug: pretend, kind: simulated}"]
)
def test_what_has_its_name_or_its_kind_stands_for_the_simulated_provider(
    load_text: Load, configured: str
) -> None:
    assert len(load_text(f"providers: [{configured}]").providers) == 1


@pytest.mark.parametrize("off", ["false", "'off'", "no", "'0'"])
def test_the_simulated_provider_can_be_switched_off(problems_of: Problems, off: str) -> None:
    model = MODEL.replace("PROVIDER", "simulated")
    (problem,) = problems_of(f"simulated_models: {off}\nmodels: [{model}]")
    assert problem.startswith("models[0].endpoints[0].provider: no provider is called 'simulated'")


def test_an_inconsistency_is_reported_beside_other_problems(problems_of: Problems) -> None:
    text = f"server: {{port: x}}\nmodels: [{MODEL.replace('PROVIDER', 'acme')}]"
    places = [line.partition(": ")[0] for line in problems_of(text)]
    assert places == ["server.port", "models[0].endpoints[0].provider"]


def test_settings_built_in_code_must_be_consistent_too() -> None:
    with pytest.raises(ValidationError, match="no provider is called 'x'"):
        Settings.model_validate(
            {
                "data_dir": Path("/data"),
                "models": [
                    {
                        "id": "a/b",
                        "context_length": 1,
                        "endpoints": [{"provider": "x", "model": "m"}],
                    }
                ],
            }
        )
