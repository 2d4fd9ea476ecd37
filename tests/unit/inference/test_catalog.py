import json
from collections.abc import Mapping
from decimal import Decimal

import pytest

from tests.support.clock import START
from tests.support.seams.accounting import FREE
from tests.support.seams.inference import Catalog, Dialect, build_catalog
from tollhouse.kernel.errors import NotFound, StartError, error_body, status_of
from tollhouse.settings.sections import Settings

ACME = {"slug": "acme", "kind": "openai_compatible", "base_url": "https://llm.acme.example/v1"}
OPENAI = {"slug": "openai", "kind": "openai_compatible", "base_url": "https://api.openai.com/v1"}
PRICING = {"prompt": "0.000001", "completion": "0.000002"}


def catalog(
    *models: dict[str, object], providers: tuple[Mapping[str, object], ...] = (ACME,)
) -> Catalog:
    settings = Settings.model_validate(
        {"providers": providers, "models": models, "data_dir": "/data"}
    )
    by_slug = {provider.slug: provider for provider in settings.providers}
    return build_catalog(settings.models, by_slug, START)


def model(
    model_id: str = "acme/large", *endpoints: dict[str, object], **fields: object
) -> dict[str, object]:
    offers = endpoints or ({"provider": "acme", "model": "large-2026", "pricing": PRICING},)
    return {"id": model_id, "context_length": 1000, "endpoints": offers} | fields


def unknown(wanted: str, of: Catalog) -> NotFound:
    with pytest.raises(NotFound) as caught:
        of.find(wanted)
    return caught.value


def test_a_model_is_found_by_its_id() -> None:
    found = catalog(model(name="Large", description="Big.", max_completion_tokens=7)).find(
        "acme/large"
    )
    assert (found.name, found.description) == ("Large", "Big.")
    assert (found.context_length, found.max_completion_tokens) == (1000, 7)


def test_a_model_without_a_name_has_its_id() -> None:
    found = catalog(model()).find("acme/large")
    assert (found.name, found.description, found.max_completion_tokens) == ("acme/large", "", None)


def test_an_endpoint_has_the_batch_price_factor_of_its_settings() -> None:
    offers = [
        {"provider": "acme", "model": "large-2026", "pricing": PRICING, **factor}
        for factor in ({}, {"batch_price_factor": "0.5"})
    ]
    found = catalog(model("acme/large", *offers)).find("acme/large")
    assert [each.batch_price_factor for each in found.endpoints] == [Decimal(1), Decimal("0.5")]


def test_models_keep_the_order_of_the_settings() -> None:
    ids = ["acme/z", "acme/a", "acme/y"]
    assert [each.id for each in catalog(*map(model, ids)).models][:3] == ids


def test_a_variant_is_a_model_of_its_own() -> None:
    both = catalog(model("acme/large"), model("acme/large:free"))
    assert both.find("acme/large:free").id == "acme/large:free"


# Prices


def test_a_model_may_be_free() -> None:
    offer = {"provider": "acme", "model": "x", "pricing": "free"}
    assert catalog(model("acme/large", offer)).find("acme/large").endpoints[0].price == FREE


def test_a_price_that_is_not_given_is_the_list_price() -> None:
    offer = {"provider": "openai", "model": "gpt-4.1"}
    found = catalog(model("openai/gpt-4.1", offer), providers=(OPENAI,)).find("openai/gpt-4.1")
    assert found.endpoints[0].price.rates.prompt == Decimal("0.000002")


def test_a_configured_price_goes_before_the_list_price() -> None:
    offer = {"provider": "openai", "model": "gpt-4.1", "pricing": PRICING}
    found = catalog(model("openai/gpt-4.1", offer), providers=(OPENAI,)).find("openai/gpt-4.1")
    assert found.endpoints[0].price.rates.prompt == Decimal("0.000001")


@pytest.mark.parametrize(("provider", "name"), [(ACME, "gpt-4.1"), (OPENAI, "no-such-model")])
def test_a_model_without_a_known_price_is_refused_by_name(
    provider: dict[str, str], name: str
) -> None:
    offer = {"provider": provider["slug"], "model": name}
    with pytest.raises(StartError) as caught:
        catalog(model("acme/large", offer), providers=(provider,))
    text = str(caught.value)
    assert "\n" not in text
    for fact in ("'acme/large'", repr(provider["slug"]), repr(name), "pricing"):
        assert fact in text


# Simulated models


def test_the_simulated_models_stand_behind_those_of_another_provider() -> None:
    both = catalog(model())
    assert both.models[0].id == "acme/large"
    assert {each.name.partition(":")[0] for each in both.models[1:]} == {"Simulated"}


def test_no_other_model_is_served_by_the_simulated_provider() -> None:
    served = catalog(model()).find("acme/large").endpoints
    assert [each.provider for each in served] == ["acme"]


def test_a_model_of_the_settings_keeps_its_id_from_a_simulated_one() -> None:
    found = catalog(model("simulated/echo")).find("simulated/echo")
    assert [each.provider for each in found.endpoints] == ["acme"]


def test_a_listed_simulated_provider_brings_its_models() -> None:
    listed = catalog(model(), providers=(ACME, {"slug": "pretend", "kind": "simulated"}))
    assert listed.find("acme/large")
    assert listed.find("simulated/echo").endpoints[0].provider == "pretend"


# Other names


def test_a_model_is_found_by_an_alias() -> None:
    found = catalog(model(aliases=["gpt-4o", "other/name"]), model("acme/gpt-4o"))
    assert found.find("gpt-4o").id == found.find("other/name").id == "acme/large"
    assert found.find("acme/gpt-4o").id == "acme/gpt-4o"


def test_a_model_is_found_without_its_author_where_that_is_clear() -> None:
    found = catalog(model(), model("other/large:free"))
    assert found.find("large").id == "acme/large"
    assert found.find("large:free").id == "other/large:free"


def test_a_name_of_several_models_names_them() -> None:
    error = unknown("large", catalog(model(), model("other/large"), model("acme/small")))
    assert status_of(error) == 404
    assert error.message == (
        "'large' is the name of several models: acme/large, other/large. Add the author."
    )


def test_not_every_model_of_a_name_is_named() -> None:
    error = unknown("m", catalog(*(model(f"a{number}/m") for number in range(12))))
    assert error.message.endswith("a9/m and 2 more. Add the author.")


def test_a_model_that_is_named_twice_is_wanted_once() -> None:
    found = catalog(model(aliases=["gpt-4o"]), model("acme/small"))
    wanted = found.wanted("gpt-4o", ["acme/small", "acme/large", "large"])
    assert [each.id for each in wanted] == ["acme/large", "acme/small"]


# What is not there


def test_without_a_near_name_the_list_is_named() -> None:
    error = unknown("other/entirely", catalog(model()))
    assert error.message.endswith("GET /v1/models lists them.")


@pytest.mark.parametrize(
    "wanted", ["x" * 10_000_000, "\N{GRINNING FACE}" * 1_000_000, "\0" * 5_000]
)
def test_a_huge_name_is_cut(wanted: str) -> None:
    error = unknown(wanted, catalog(model()))
    assert len(error.message) < 1_000
    assert len(json.dumps(error_body(error))) < 10_000


@pytest.mark.parametrize(
    "wanted", ["ACME/LARGE", "acme/large ", " acme/large", "acme", "large-2026"]
)
def test_a_name_is_exact(wanted: str) -> None:
    unknown(wanted, catalog(model()))


LISTED = {**OPENAI, "name": "OpenAI", "list_models": True}


def test_a_price_list_puts_its_models_into_the_catalogue() -> None:
    found = catalog(providers=(LISTED,)).find("openai/gpt-4o")
    assert found.name.startswith("OpenAI: ")
    assert found.context_length == 128_000
    [endpoint] = found.endpoints
    assert (endpoint.provider, endpoint.model) == ("openai", "gpt-4o")
    assert endpoint.price.rates.prompt == Decimal("0.0000025")
    assert endpoint.dialects is None
    assert "max_tokens" in endpoint.profile.refuses_in_chat


def test_a_listed_embedding_model_answers_with_embeddings_alone() -> None:
    found = catalog(providers=(LISTED,)).find("openai/text-embedding-3-small")
    assert found.endpoints[0].dialects == {Dialect.EMBEDDINGS}


def test_listed_models_that_answer_with_sound_or_pictures_are_left_out() -> None:
    names = {each.id for each in catalog(providers=(LISTED,)).models}
    assert not [name for name in names if "realtime" in name or "image" in name or "tts" in name]


def test_a_configured_model_goes_before_the_listed_one() -> None:
    offer = {"provider": "openai", "model": "gpt-4o", "pricing": PRICING}
    found = catalog(model("openai/gpt-4o", offer), providers=(LISTED,)).find("openai/gpt-4o")
    assert found.context_length == 1000


def test_a_server_without_a_price_list_cannot_list_its_models() -> None:
    with pytest.raises(StartError, match="no price list is known for provider 'acme'"):
        catalog(providers=({**ACME, "list_models": True},))


def test_an_endpoint_says_what_is_known_of_its_provider() -> None:
    provider = {**ACME, "name": "Acme", "keeps_data": False, "refuses": ["seed"]}
    offer = {"provider": "acme", "model": "m", "pricing": PRICING, "dialects": ["completions"]}
    given = model("acme/m", offer, max_completion_tokens=9)
    [endpoint] = catalog(given, providers=(provider,)).find("acme/m").endpoints
    assert endpoint.dialects == {Dialect.COMPLETIONS}
    assert endpoint.profile.refuses == {"seed"}
    assert (endpoint.provider_name, endpoint.keeps_data) == ("Acme", False)
    assert endpoint.max_completion_tokens == 9
