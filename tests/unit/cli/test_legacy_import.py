import json

import pytest

from tollhouse.cli import vault_secrets
from tollhouse.cli.vault_secrets import read_secrets
from tollhouse.kernel.errors import StartError
from tollhouse.vault import policy

SECRET = "hunter2"


def mistakes(text: str) -> list[str]:
    with pytest.raises(StartError) as caught:
        read_secrets(text, "F")
    assert SECRET not in str(caught.value)
    return str(caught.value).splitlines()


def test_the_rules_are_the_servers() -> None:
    assert f"^{vault_secrets.NAME}$" == policy.NAME
    assert vault_secrets.LONGEST_NAME == policy.LONGEST_NAME
    assert vault_secrets.LONGEST_VALUE == policy.LONGEST_VALUE


def test_a_json_object() -> None:
    assert read_secrets('\ufeff {"a": "x", "b_2": "y z"}', "F") == [
        {"name": "a", "value": "x"},
        {"name": "b_2", "value": "y z"},
    ]


def test_lines() -> None:
    text = '# old\n\na=x=y\r\n b ="q" \n'
    assert read_secrets(text, "F") == [
        {"name": "a", "value": "x=y"},
        {"name": "b", "value": '"q" '},
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"ok=1\n{SECRET}", "F:2"),
        (f"{SECRET.upper()}=1", "F:1"),
        ("a=", "F:1"),
        (f"a={SECRET}\0", "F:1"),
        ("a=1\na=2", "F:2"),
        (json.dumps({"a": "x", f"A-{SECRET}": "y"}), "F: entry 2"),
        (json.dumps({"a": [SECRET]}), "F: entry 1"),
        (json.dumps({"a": f"{SECRET}\n"}), "F: entry 1"),
        (json.dumps({"a": "x" * 65_537}), "F: entry 1"),
        (json.dumps({"a": None}), "F: entry 1"),
        ('{"a": "\\ud800"}', "F: entry 1"),
        ('{"a": "1", "a": "2"}', "F: entry 2"),
    ],
)
def test_a_mistake_is_named_by_its_place(text: str, place: str) -> None:
    [mistake] = mistakes(text)
    assert mistake.startswith(f"{place}: ")


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", f'{{"a": "{SECRET}"', f"{{a={SECRET}"])
def test_nothing_to_import(text: str) -> None:
    assert len(mistakes(text)) == 1


def test_more_than_an_import_takes() -> None:
    assert "1001 secrets" in mistakes("".join(f"a{n}=x\n" for n in range(1001)))[0]


def test_many_mistakes_are_counted() -> None:
    found = mistakes("X=1\n" * 50)
    assert (len(found), found[-1]) == (21, "and 30 more mistakes")
