"""Each rule that is broken on purpose is found by the random schedules: these look at something."""

import pytest

from tests.simulation.schedules import FAULTS, failure, seeded, shrunk

FREQUENT = {each["name"]: each for each in FAULTS if not each.get("rare")}
RARE = {each["name"]: each for each in FAULTS if each.get("rare")}


def first_found(fault: dict, seeds: int) -> int | None:
    broken = seeded(fault)
    return next((seed for seed in range(seeds) if failure(seed, **broken)), None)


@pytest.mark.parametrize("name", FREQUENT)
def test_a_broken_rule_is_found(name: str) -> None:
    assert first_found(FREQUENT[name], 200) is not None


@pytest.mark.soak
@pytest.mark.parametrize("name", RARE)
def test_a_broken_rule_that_seldom_shows_is_found(name: str) -> None:
    assert first_found(RARE[name], 20_000) is not None


def test_what_is_found_is_shrunk_to_a_trace_that_ends_with_it() -> None:
    fault = next(
        each for each in FAULTS if each["name"] == "a cost above its hold makes a lease negative"
    )
    broken = seeded(fault)
    found, *trace = shrunk(first_found(fault, 100), **broken)
    assert "stimuli: 1: leased" in found
    assert len(trace) < 40
