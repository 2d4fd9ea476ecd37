"""An upgrade to remembered events: interns of before stay, and each may have some, once each."""

from pathlib import Path

import sqlalchemy as sa

from tests.component.storage.earlier_schema import check_takes_once

_INSERT = "INSERT INTO intern_channel_events (intern_id, event_id, seen_at) VALUES ('{}', 'Ev1', 0)"


def test_keeps_interns_and_takes_their_events(empty_url: sa.URL, tmp_path: Path) -> None:
    check_takes_once(empty_url, "0007", tmp_path, _INSERT)
