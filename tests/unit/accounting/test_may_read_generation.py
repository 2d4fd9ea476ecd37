import pytest

from tests.support.builders import api_key, generation_record
from tollhouse.accounting.policy import may_read_generation
from tollhouse.identity.types import KeyKind, subject_of

OWN = {"workspace_id": "workspace", "key_hash": "a" * 64}
OF_ANOTHER_KEY = {**OWN, "key_hash": "b" * 64}
OF_ANOTHER_WORKSPACE = {**OWN, "workspace_id": "elsewhere"}
OF_NEITHER = {"workspace_id": "elsewhere", "key_hash": "b" * 64}


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (KeyKind.API, OWN),
        (KeyKind.API, OF_ANOTHER_KEY),
        (KeyKind.INTERN, OWN),
        (KeyKind.INTERN, OF_ANOTHER_WORKSPACE),
        (KeyKind.MANAGEMENT, OF_NEITHER),
    ],
)
def test_a_key_sees_what_its_kind_may(kind: KeyKind, record: dict[str, str]) -> None:
    assert may_read_generation(subject_of(api_key(kind=kind)), generation_record(**record))


@pytest.mark.parametrize(
    ("kind", "record"),
    [(KeyKind.API, OF_ANOTHER_WORKSPACE), (KeyKind.INTERN, OF_ANOTHER_KEY)],
)
def test_a_key_sees_nothing_else(kind: KeyKind, record: dict[str, str]) -> None:
    assert not may_read_generation(subject_of(api_key(kind=kind)), generation_record(**record))
