from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tollhouse.kernel.errors import StartError
from tollhouse.settings.problems import ConfigError
from tollhouse.settings.sections import Settings
from tollhouse.settings.source import read_document

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]

ANOTHER = "expected a single document in the stream, but found another document"


def host(value: str) -> str:
    return f"server: {{host: '{value}'}}"


@pytest.mark.parametrize(
    ("written", "env", "read"),
    [
        ("${NAME}.example", {"NAME": "gate"}, "gate.example"),
        ("${TOLLHOUSE_NAME}", {"TOLLHOUSE_NAME": "gate"}, "gate"),
        ("${NAME:-gate}", {}, "gate"),
        ("${NAME:-gate}", {"NAME": ""}, "gate"),
        ("${NAME:-gate}", {"NAME": "door"}, "door"),
        ("$${NAME}", {}, "${NAME}"),
        ("$NAME$", {}, "$NAME$"),
        ("${NAME}", {"NAME": "${OTHER}", "OTHER": "x"}, "${OTHER}"),
    ],
)
def test_a_reference_takes_the_variable(
    load_text: Load, written: str, env: dict[str, str], read: str
) -> None:
    assert load_text(host(written), env).server.host == read


def test_a_reference_may_stand_for_a_number_or_a_list(load_text: Load) -> None:
    assert load_text("server: {port: '${PORT}'}", {"PORT": "9000"}).server.port == 9000
    settings = load_text("server: {cors_origins: '${ORIGINS}'}", {"ORIGINS": "http://a, http://b"})
    assert settings.server.cors_origins == ("http://a", "http://b")


def test_an_unset_variable_is_named_with_the_setting(problems_of: Problems) -> None:
    text = "providers: [{slug: a, kind: anthropic, api_key: '${ACME_KEY}'}]"
    assert problems_of(text) == [
        "providers[0].api_key: refers to the environment variable ACME_KEY, which is not set"
    ]


@pytest.mark.parametrize("broken", ["${", "${}", "${1A}", "${NAME", "${NAME-x}", "${NAME:?x}"])
def test_a_broken_reference_is_an_error(problems_of: Problems, broken: str) -> None:
    (problem,) = problems_of(host(broken), {"NAME": "x"})
    assert problem.startswith("server.host: holds a broken reference")


def test_a_variable_that_the_file_refers_to_may_be_called_anything(load_text: Load) -> None:
    settings = load_text(host("${TOLLHOUSE_NAME}"), {"TOLLHOUSE_NAME": "gate"})
    assert settings.server.host == "gate"


def test_a_key_that_stands_twice_is_an_error(problems_of: Problems) -> None:
    assert problems_of("server:\n  port: 1\n  port: 2\n") == [
        "line 3, column 3: 'port' is there twice, first in line 2"
    ]


def test_a_merged_mapping_may_be_overridden(load_text: Load) -> None:
    text = """
providers:
  - &acme {slug: acme, kind: openai_compatible, base_url: "http://h/v1"}
  - {<<: *acme, slug: second}
  - {<<: *acme, slug: third}
"""
    slugs = [provider.slug for provider in load_text(text).providers]
    assert slugs[:3] == ["acme", "second", "third"]


@pytest.mark.parametrize("key", ["1", "on", "1.5", "~"])
def test_a_key_that_is_not_text_is_an_error(problems_of: Problems, key: str) -> None:
    assert problems_of(f"{key}: x") == ["line 1, column 1: the key is not text; put it in quotes"]


def test_a_date_is_text(load_text: Load) -> None:
    text = (
        "models: [{id: a/b, context_length: 1, endpoints: [{provider: simulated, model: MODEL}]}]"
    )
    settings = load_text(text.replace("MODEL", "2026-13-45"))
    assert settings.models[0].endpoints[0].model == "2026-13-45"


@pytest.mark.parametrize("number", ["2026", "1.5", "yes", "12:30"])
def test_text_that_yaml_takes_for_something_else_has_to_be_quoted(
    problems_of: Problems, number: str
) -> None:
    assert problems_of(f"server: {{host: {number}}}") == [
        "server.host: must be text; put it in quotes"
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("server: {port: 1", "line 1, column 17: expected ',' or '}', but got '<stream end>'"),
        (
            "server:\n\tport: 1",
            "line 2, column 1: found character '\\t' that cannot start any token",
        ),
        ("a: b: c", "line 1, column 5: mapping values are not allowed here"),
        ("- a", "must be a mapping of names to values at its top level"),
        ("text", "must be a mapping of names to values at its top level"),
        ("a: 1\n---\nb: 1", "line 2, column 1: " + ANOTHER),
        ("a: &x [*x]", "is nested too deeply, or contains itself"),
        ("[" * 5000, "is nested too deeply, or contains itself"),
        ("a: !!int x", "holds a value that YAML cannot read"),
        ("a: 1\nb: \x01", "line 2: holds a control character"),
    ],
)
def test_what_is_no_yaml_is_one_clear_line(problems_of: Problems, text: str, line: str) -> None:
    assert problems_of(text) == [line]


@pytest.mark.parametrize("text", ["key: *sk-secret", "key: !sk-secret x", 'key: "\\sk-secret"'])
def test_an_error_of_yaml_does_not_repeat_the_value(problems_of: Problems, text: str) -> None:
    (problem,) = problems_of(text)
    assert problem.startswith("line 1, column ")
    assert "secret" not in problem


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be read: No such file or directory") as caught:
        read_document(tmp_path / "none.yaml", {})
    assert str(caught.value).startswith(str(tmp_path / "none.yaml"))


def test_a_file_in_another_encoding_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"server: {host: \xe4}")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(at byte 15\)"):
        read_document(file, {})


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "bom.yaml"
    file.write_text("server: {port: 1}", encoding="utf-8-sig")
    assert read_document(file, {}).tree == {"server": {"port": 1}}


@hypothesis_settings(deadline=None)
@given(text=st.text(alphabet=st.sampled_from("${}:-$AB\\'\"\n[]*&!#|%@ x"), max_size=40))
def test_whatever_a_file_holds_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(text, encoding="utf-8")
    names, lines = {}, ()
    try:
        names = read_document(file, {"A": "a"}).tree
    except ConfigError as error:
        lines = error.lines
    assert len(lines) <= 1
    assert all(isinstance(name, str) for name in names)
