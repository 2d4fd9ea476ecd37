from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import api_key
from tests.support.ids import SequentialIds
from tollhouse.identity.access import PREFIX, hash_key, mask_key, new_key_text
from tollhouse.identity.types import IssuedKey
from tollhouse.kernel.ids import RandomIds

SHOWN = 6
material = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", min_size=43)


def test_a_key_says_what_it_is_and_has_256_random_bits() -> None:
    text = new_key_text(RandomIds())
    assert text.startswith("sk-th-v1-")
    assert len(text) == len(PREFIX) + 43


def test_two_keys_differ(ids: SequentialIds) -> None:
    assert new_key_text(ids) != new_key_text(ids)


def test_a_key_is_stored_as_its_sha256() -> None:
    assert hash_key("sk-th-v1-abc") == sha256(b"sk-th-v1-abc").hexdigest()


def test_any_header_text_can_be_hashed() -> None:
    assert len(hash_key("sk-th-v1-\xff\udcff")) == 64


@given(material)
def test_a_label_shows_six_characters_of_the_secret_part(random: str) -> None:
    label = mask_key(PREFIX + random)
    assert label == f"{PREFIX}{random[:3]}...{random[-3:]}"
    assert len(label) - len(PREFIX) - len("...") == SHOWN


@given(material)
def test_a_label_does_not_contain_the_secret_part(random: str) -> None:
    assert random not in mask_key(PREFIX + random)


def test_the_text_of_a_new_key_is_in_no_repr() -> None:
    issued = IssuedKey(api_key(), "sk-th-v1-the-secret-part")
    assert "the-secret-part" not in repr(issued)
    assert "the-secret-part" not in f"{issued}"
