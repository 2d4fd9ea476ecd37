"""An upgrade to interns in chat services: interns of before stay, and each may have a service."""

from pathlib import Path

import sqlalchemy as sa

from tests.component.storage.earlier_schema import check_takes_once

_INSERT = (
    "INSERT INTO intern_channels (intern_id, service, settings, updated_at)"
    " VALUES ('{}', 'slack', '{{}}', 0)"
)


def test_keeps_interns_and_takes_their_services(empty_url: sa.URL, tmp_path: Path) -> None:
    check_takes_once(empty_url, "0003", tmp_path, _INSERT)
