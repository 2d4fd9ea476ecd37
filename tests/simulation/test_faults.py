"""Each rule that is broken on purpose is found by the random schedules: these look at something."""

import pytest

from tests.simulation.schedules import FAULTS, failure, seeded, shrunk

FREQUENT = {each["name"]: each for each in FAULTS if not each.get("rare")}
RARE = {each["name"]: each for each in FAULTS if each.get("rare")}


def first_found(fault: dict, seeds: int) -> int | None:
    """Return the first seed with which a check fails: its number comes first. A crash is none."""
    found = ((seed, failure(seed, **broken)) for broken in [seeded(fault)] for seed in range(seeds))
    return next((seed for seed, broken in found if broken and broken[0].isdigit()), None)


@pytest.mark.parametrize("name", FREQUENT)
def test_a_broken_rule_is_found(name: str) -> None:
    assert first_found(FREQUENT[name], 200) is not None


@pytest.mark.soak
@pytest.mark.parametrize("name", RARE)
def test_a_broken_rule_that_seldom_shows_is_found(name: str) -> None:
    assert first_found(RARE[name], 20_000) is not None


def test_what_is_found_is_shrunk_to_a_trace_that_ends_with_it() -> None:
    fault = FREQUENT["a grant does not look at what is left"]
    found, *trace = shrunk(first_found(fault, 10), **seeded(fault))
    assert "stimuli: 1: " in found
    assert " grant " in trace[-1]
    assert len(trace) < 40
