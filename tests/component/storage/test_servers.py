"""Servers of one PostgreSQL database know of each other."""

import sqlalchemy as sa

from tollhouse.storage.postgresql import join_servers


async def test_a_server_counts_the_others_that_are_there(migrated_postgresql: sa.URL) -> None:
    first, alone, _ = await join_servers(migrated_postgresql)
    second, others, _ = await join_servers(migrated_postgresql)
    assert (alone, others) == (0, 1)
    await first.close()
    third, left, _ = await join_servers(migrated_postgresql)
    assert left == 1
    await second.close()
    await third.close()
