"""Addresses of databases, and failures told in one line; no database is opened."""

import traceback

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from tollhouse.kernel.errors import StartError
from tollhouse.storage.failures import cannot_use, parse_database_url, reason, shown


class TestParsing:
    def test_keeps_what_the_operator_says_about_the_connection(self) -> None:
        url = parse_database_url("postgresql://u:p@h/d?sslmode=verify-full")
        assert dict(url.query) == {"sslmode": "verify-full"}

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("", "cannot be read"),
            ("hunter2", "cannot be read"),
            ("postgresql://u:hunter2@h:port/d", "cannot be read"),
            ("postgresql://u:hunter2@[::1/d", "cannot be read"),
            ("mysql://u:hunter2@h/d", "'mysql' is not supported"),
            ("sqlite://", "names no file"),
        ],
    )
    def test_refuses_the_rest_in_one_line_without_a_password(self, text: str, told: str) -> None:
        with pytest.raises(StartError, match=told) as refused:
            parse_database_url(text)
        assert "\n" not in str(refused.value)
        assert "hunter2" not in "".join(traceback.format_exception(refused.value))


class TestFailures:
    POSTGRESQL = sa.make_url("postgresql+asyncpg://u:hunter2@h:1/d")

    def test_show_the_url_of_postgresql_without_its_password(self) -> None:
        assert shown(self.POSTGRESQL) == "the database postgresql://u:***@h:1/d"

    def test_show_no_password_among_the_parameters(self) -> None:
        url = parse_database_url("postgresql:///d?host=/run/pg&user=u&password=hunter2")
        assert shown(url) == "the database postgresql:///d?host=%2Frun%2Fpg&user=u"

    def test_are_told_without_the_statement_and_its_values(self) -> None:
        error = OperationalError("SELECT :x", {"x": "hunter2"}, ValueError("no such table\nHINT"))
        assert reason(error) == "no such table"

    def test_are_told_without_the_class_that_a_driver_puts_in_front(self) -> None:
        wrapped = OperationalError("", {}, ValueError("<class 'asyncpg.Error'>: it broke"))
        assert reason(wrapped) == "it broke"

    def test_say_what_to_check(self) -> None:
        assert str(cannot_use(self.POSTGRESQL, OSError("refused"))) == (
            "the database postgresql://u:***@h:1/d cannot be used (refused): "
            "check the database URL and that the server runs"
        )
