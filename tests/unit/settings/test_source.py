from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tollhouse.kernel.errors import StartError
from tollhouse.settings.problems import ConfigError
from tollhouse.settings.source import read_document


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
