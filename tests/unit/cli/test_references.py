"""Interns by name, wherever their id is taken."""

from typing import TYPE_CHECKING, Any, cast

import pytest

from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.references import intern_id
from tollhouse.kernel.errors import StartError

if TYPE_CHECKING:
    from tollhouse.cli.client import Server

ADA = "11111111-0000-4000-8000-000000000001"


class Interns:
    """A server with the interns ada and two called bob."""

    async def get(self, path: str, **_: object) -> dict[str, Any]:
        assert path == "/interns"
        names = {ADA: "ada", "b1": "bob", "b2": "bob"}
        return {"data": [{"id": each, "name": name} for each, name in names.items()]}


SERVER = cast("Server", Interns())


@pytest.mark.parametrize("reference", ["ada", ADA])
async def test_an_intern_is_named_by_its_name_or_its_id(reference: str) -> None:
    assert await intern_id(SERVER, reference) == ADA


@pytest.mark.parametrize(("name", "said"), [("eve", "no intern eve"), ("bob", "several interns")])
async def test_a_name_of_none_or_of_several_is_refused(name: str, said: str) -> None:
    with pytest.raises(CommandFailed, match=said):
        await intern_id(SERVER, name)


async def test_nothing_is_no_name() -> None:
    with pytest.raises(StartError):
        await intern_id(SERVER, " ")
