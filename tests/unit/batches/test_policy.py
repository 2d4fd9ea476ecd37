import re
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from tests.support.batches import batch
from tests.support.builders import api_key
from tests.support.clock import START
from tests.support.seams.accounting import Price, Rates
from tests.support.seams.batches import (
    NEXT,
    OPEN,
    RUNNING,
    BatchDemand,
    BatchEndpoint,
    BatchRules,
    BatchRunners,
    BatchStatus,
    VisibilityFilter,
    candidates,
    closing_reason,
    estimate,
    estimate_nano,
    final_status,
    find_model,
    is_kept,
    visibility_of,
)
from tests.support.seams.identity import KeyKind, subject_of
from tests.support.seams.inference import Catalog, Dialect, Endpoint, MaxPrice, Model, Preferences
from tollhouse.kernel.errors import Invalid

RULES = BatchRules(per_hour=3, most_open=2)
NOBODY = Preferences()
MICRO = Decimal("0.000001")


def endpoint(provider: str, prompt: int = 1, completion: int = 2, factor: str = "1") -> Endpoint:
    rates = Rates(prompt * MICRO, completion * MICRO, MICRO, MICRO, MICRO)
    return Endpoint(provider, "m", Price(rates), batch_price_factor=Decimal(factor))


def model(name: str, *endpoints: Endpoint) -> Model:
    return Model(name, name, "", 1_000, None, endpoints or (endpoint("acme"),))


CATALOG = Catalog([model("acme/large"), model("acme/large:free"), model("local/llama:8b")])


def dialects_of(_endpoint: Endpoint) -> frozenset[Dialect]:
    return frozenset({Dialect.CHAT})


def test_a_colon_in_a_models_own_name_is_no_variant() -> None:
    assert find_model(CATALOG, "local/llama:8b:batch").id == "local/llama:8b"


def test_everybody_who_speaks_it_may_run_a_batch() -> None:
    both = model("m", endpoint("acme"), endpoint("other"))
    found = candidates(both, BatchEndpoint.MESSAGES, NOBODY, (), dialects_of)
    assert [each.provider for each in found] == ["acme", "other"]


def test_a_model_that_does_not_answer_an_endpoint_is_named_with_it() -> None:
    with pytest.raises(Invalid, match=r"^model: acme/large does not answer .* /v1/embeddings"):
        candidates(CATALOG.find("acme/large"), BatchEndpoint.EMBEDDINGS, NOBODY, (), dialects_of)


@pytest.mark.parametrize(
    ("preferred", "says"),
    [
        (Preferences(only=("b",)), "provider.only: none of them runs acme/large; there are: acme."),
        (Preferences(ignore=("acme",)), "provider.ignore: it names all that run acme/large; there"),
        (
            Preferences(deny_data_collection=True),
            "provider.data_collection: deny leaves none, since all that run acme/large keep data;",
        ),
        (
            Preferences(max_price=MaxPrice(prompt=Decimal("0.5"))),
            "provider.max_price: all that run acme/large cost more; there are: acme.",
        ),
        (Preferences(unsupported_guarantees=True), "provider: nobody who runs acme/large vouches"),
    ],
)
def test_a_preference_that_nobody_meets_is_named_with_the_reason(
    preferred: Preferences, says: str
) -> None:
    with pytest.raises(Invalid, match=f"^{re.escape(says)}"):
        candidates(
            CATALOG.find("acme/large"), BatchEndpoint.CHAT_COMPLETIONS, preferred, (), dialects_of
        )


DEMAND = BatchDemand(items=10, input_tokens=1_000, largest_input=100, output_tokens=500)


def test_a_batch_is_estimated_at_the_dearest_of_those_who_may_run_it() -> None:
    endpoints = [endpoint("acme", 1, 2), endpoint("other", 5, 10)]
    assert estimate_nano(DEMAND, BatchEndpoint.CHAT_COMPLETIONS, endpoints, RULES) == 10_000_000


def test_the_price_of_a_batch_has_its_factor_and_own_keys_the_whole_one() -> None:
    endpoints, dear = [endpoint("acme", 1, 2, factor="0.5")], [endpoint("acme", 9, 18)]
    assert estimate_nano(DEMAND, BatchEndpoint.CHAT_COMPLETIONS, endpoints, RULES) == 1_000_000
    for who, fee, amounts in (
        (BatchRunners(endpoints), 1, (1_000_000, 1_000_000)),
        (BatchRunners(endpoints, endpoints), 0, (1_000_000, 2_000_000)),
        (BatchRunners((), endpoints), 0, (0, 2_000_000)),
        (BatchRunners((), endpoints), Fraction(1, 20), (100_000, 2_100_000)),
        (BatchRunners(dear, endpoints), Fraction(1, 20), (18_000_000, 18_000_000)),
        (BatchRunners(endpoints, dear), Fraction(1, 10), (1_800_000, 19_800_000)),
    ):
        found = estimate(DEMAND, BatchEndpoint.CHAT_COMPLETIONS, who, RULES, Fraction(fee))
        assert found == amounts


def test_what_sets_no_limit_counts_what_is_assumed() -> None:
    demand = BatchDemand(items=10, unlimited=4)
    rules = BatchRules(assumed_output_tokens=250)
    assert (
        estimate_nano(demand, BatchEndpoint.CHAT_COMPLETIONS, [endpoint("acme")], rules)
        == 2_000_000
    )


def test_embeddings_write_nothing() -> None:
    demand = BatchDemand(items=10, input_tokens=1_000, largest_input=100, unlimited=10)
    assert estimate_nano(demand, BatchEndpoint.EMBEDDINGS, [endpoint("acme")], RULES) == 1_000_000


def test_an_intern_s_own_key_sees_those_of_its_intern() -> None:
    own = api_key(workspace_id="here", kind=KeyKind.INTERN, intern_id="ada")
    assert visibility_of(subject_of(own)) == VisibilityFilter("here", "ada")


def test_a_batch_is_kept_until_its_retention_is_over() -> None:
    rules = BatchRules(retention=timedelta(days=30))
    assert is_kept(batch(), rules, START + timedelta(days=29))
    assert not is_kept(batch(), rules, START + timedelta(days=30))
    assert not is_kept(batch(deleted_at=START), rules, START)


def reachable(start: BatchStatus) -> set[BatchStatus]:
    found, waiting = set(), [start]
    while waiting:
        for status in NEXT[waiting.pop()] - found:
            found.add(status)
            waiting.append(status)
    return found


def test_every_status_leads_from_the_first_to_an_end_and_never_back() -> None:
    assert set(NEXT) == set(BatchStatus)
    assert reachable(BatchStatus.VALIDATING) == set(BatchStatus) - {BatchStatus.VALIDATING}
    for status in BatchStatus:
        assert status not in reachable(status)
    for status in OPEN:
        assert any(each.is_terminal for each in reachable(status))


@pytest.mark.parametrize("status", [BatchStatus.FINALIZING, BatchStatus.CANCELLING])
def test_no_item_is_begun_again_once_a_batch_is_being_closed(status: BatchStatus) -> None:
    assert not RUNNING & reachable(status)


@pytest.mark.parametrize(
    ("facts", "ends"),
    [
        ({"status": BatchStatus.CANCELLING, "unrun": 10}, BatchStatus.CANCELLED),
        (
            {"status": BatchStatus.FINALIZING, "ending": BatchStatus.EXPIRED, "unrun": 10},
            BatchStatus.EXPIRED,
        ),
        ({"status": BatchStatus.IN_PROGRESS, "unrun": 10}, BatchStatus.FAILED),
        ({"status": BatchStatus.IN_PROGRESS, "unrun": 9}, BatchStatus.COMPLETED),
    ],
    ids=["cancelled", "expired", "none could be run", "all failed at a provider"],
)
def test_a_batch_whose_items_all_failed_ends(facts: dict[str, Any], ends: BatchStatus) -> None:
    assert final_status(batch(failed=10, **facts)) is ends


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (BatchStatus.VALIDATING, None),
        (BatchStatus.IN_PROGRESS, None),
        (BatchStatus.FINALIZING, "batch_expired"),
        (BatchStatus.CANCELLING, "batch_cancelled"),
    ],
)
def test_items_that_are_not_begun_any_more_are_told_why(
    status: BatchStatus, word: str | None
) -> None:
    assert closing_reason(batch(status=status)) == word
