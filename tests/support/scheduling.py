"""Deals the files of a run out to its processes, so that what a file's tests share is made once.

    make test ──> --dist=loadfile ──> `FileScheduling`

All tests of published clients are one unit: the environments of those libraries take seconds to
start. Files that start servers come first and pure tables last, so that no long file is begun at
the end, when the other processes have nothing left to do. Those tables share nothing and are dealt
in parts, for the same reason.
"""

from binascii import crc32
from typing import Final

from xdist.scheduler import LoadScopeScheduling

CLIENTS: Final = "tests/contract/"
_TABLES: Final = "tests/unit/inference/formats/"
_PARTS: Final = 8
_ORDER: Final = (
    CLIENTS,
    "tests/acceptance/",
    "tests/faults/",
    "tests/component/",
    "tests/architecture/",
)


class FileScheduling(LoadScopeScheduling):
    """xdist's scheduling by file, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(CLIENTS):
            return CLIENTS
        file = nodeid.partition("::")[0]
        part = crc32(nodeid.encode()) % _PARTS if nodeid.startswith(_TABLES) else 0
        return f"{file} {part}"


def rank(nodeid: str) -> int:
    """Return a test's place in the order of a run."""
    for place, folder in enumerate(_ORDER):
        if nodeid.startswith(folder):
            return place
    return len(_ORDER)
