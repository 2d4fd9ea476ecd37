from tests.support.seams.identity import PATTERN_NAMES
from tests.support.seams.inference import BUILT_IN


def test_a_policy_may_hold_the_names_that_mean_something() -> None:
    assert tuple(BUILT_IN) == PATTERN_NAMES
