"""Makes a process of root an ordinary user's.

The user has no group, no capability and no name. It owns the first of the folders with all in it,
and reaches all of them: where a folder above is closed to it (Python below `/root`, say), it sees
mounts of its own, in which that folder has only what is named here.

Source: mount(2), mount_namespaces(7).
"""

import ctypes
import os
import stat
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_PR_SET_DUMPABLE = 4
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_libc = ctypes.CDLL(None, use_errno=True)


def become_user(user: int, folders: list[Path]) -> None:
    """Make this process a user's, as if the user had executed it."""
    chown_tree(folders[0], user)
    make_reachable(folders)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # A process that switches users belongs to root in /proc until it executes something.
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))


def chown_tree(folder: Path, user: int) -> None:
    """Make a user own a folder and everything in it."""
    os.chown(folder, user, user)
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(top, name), user, user, follow_symlinks=False)


def make_reachable(folders: list[Path]) -> None:
    """Make folders reachable for every user, at their own paths."""
    closed = {each: _closed_above(each) for each in folders}
    _checked(_libc.unshare(_CLONE_NEWNS))
    _mount("none", Path("/"), None, _MS_REC | _MS_SLAVE)
    # Opened before anything is covered, and in these mounts.
    opened = {each: os.open(each, os.O_PATH) for each, above in closed.items() if above}
    for above in {above for above in closed.values() if above}:
        _mount("tmpfs", above, b"tmpfs", 0, b"mode=755")
    for each in sorted(opened):
        each.mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{opened[each]}", each, None, _MS_BIND | _MS_REC)
        os.close(opened[each])


def _closed_above(folder: Path) -> Path | None:
    """Return the uppermost folder above one that not everybody may pass."""
    for above in reversed(folder.parents):
        if not above.stat().st_mode & stat.S_IXOTH:
            return above
    return None


def _mount(
    source: str, target: Path, kind: bytes | None, flags: int, options: bytes | None = None
) -> None:
    place = os.fsencode(target)
    _checked(_libc.mount(source.encode(), place, kind, ctypes.c_ulong(flags), options))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
