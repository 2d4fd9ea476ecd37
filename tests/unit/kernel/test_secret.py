import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tollhouse.kernel.secret import Secret

PLAINTEXT = "sk-provider-0123456789"


@dataclass(frozen=True)
class Holder:
    api_key: Secret


def in_an_f_string(secret: Secret) -> str:
    return f"{secret}"


def in_an_f_string_as_repr(secret: Secret) -> str:
    return f"{secret!r:>40}"


def in_a_list(secret: Secret) -> str:
    return repr([secret])


def in_a_dataclass(secret: Secret) -> str:
    return repr(Holder(secret))


@pytest.mark.parametrize(
    "show",
    [repr, str, "{}".format, in_an_f_string, in_an_f_string_as_repr, in_a_list, in_a_dataclass],
)
def test_does_not_show_itself(show: Callable[[Secret], str]) -> None:
    text = show(Secret(PLAINTEXT))
    assert PLAINTEXT not in text
    assert Secret.MASK in text


def test_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(Secret(PLAINTEXT))


def test_is_not_written_as_json() -> None:
    with pytest.raises(TypeError):
        json.dumps({"api_key": Secret(PLAINTEXT)})


def test_has_no_attribute_to_look_into() -> None:
    assert not hasattr(Secret(PLAINTEXT), "__dict__")
