"""`tollhouse intern files` and `tollhouse intern archives`: what is in a workspace, or was in one.

Archives are read where they are stored, so that no server has to run: who may read the store may
read them.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from tollhouse.cli.client import Server, load_settings
from tollhouse.cli.control import CommandGroup, examples
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.options import Config, DataDir, Force, InternName, Json
from tollhouse.cli.output import AlreadyWritten, Column, Record, Report, Table, column, print_result
from tollhouse.cli.references import find_intern
from tollhouse.cli.values import escape_unprintable

if TYPE_CHECKING:
    from tollhouse.cli.interns.files import InternFiles
    from tollhouse.interns.workspaces.archive_store import ArchiveStore

files_app = CommandGroup("files", "The files of a running intern, in its workspace.", by_key=True)
archives_app = CommandGroup(
    "archives",
    "The archived workspaces of deleted interns; for an operator, on the server's machine.",
)

FilePath = Annotated[str, Argument(metavar="PATH", help="Of the file, in the intern's workspace.")]
Reference = Annotated[
    str, Argument(metavar="INTERN", help="The intern's id, or its name if that is one's own.")
]


@files_app.control("list", "tollhouse intern files list ada", "tollhouse intern files list ada src")
async def list_files(
    server: Server,
    intern: InternName,
    path: Annotated[str, Argument(metavar="FOLDER", help="The workspace unless given.")] = "",
) -> Table:
    """List what a folder holds, by name."""
    async with _opened(server, intern) as there:
        found = await there.listed(path)
    name = Column("name", lambda each: escape_unprintable(each["name"]))
    return Table(found, ["mode", "size", column("modified_at", "modified"), name])


@files_app.control(
    "get", "tollhouse intern files get ada report.pdf", "tollhouse intern files get ada notes.txt -"
)
async def get_file(
    server: Server,
    intern: InternName,
    path: FilePath,
    to: Annotated[
        str,
        Argument(
            metavar="FILE", help="File to write; - is standard output. Default: the current folder."
        ),
    ] = ".",
) -> AlreadyWritten:
    """Download a file; it appears when it is complete."""
    target = None if to == "-" else Path(to)
    async with _opened(server, intern) as there:
        size = await there.get(path, target)
    return AlreadyWritten("" if target is None else f"{size} bytes")


@files_app.control(
    "put",
    "tollhouse intern files put ada data.csv",
    "tollhouse intern files put ada - notes/today.txt < today.txt",
)
async def put_file(
    server: Server,
    intern: InternName,
    file: Annotated[str, Argument(metavar="FILE", help="What to send; - is standard input.")],
    path: Annotated[
        str, Argument(metavar="PATH", help="Path in the workspace; a folder ends with a slash.")
    ] = "./",
) -> Report:
    """Send a file; it takes the place of what has its name once it is there as a whole."""
    source = None if file == "-" else Path(file)
    if source is None and path.endswith("/"):
        raise CommandFailed("name the file: tollhouse intern files put INTERN - PATH")
    async with _opened(server, intern) as there:
        found = await there.put(source, path)
    return Report(found, Record({**found, "name": escape_unprintable(found["name"])}))


@files_app.control(
    "delete",
    "tollhouse intern files delete ada notes.txt",
    "tollhouse intern files delete ada build --recursive",
    confirm="Delete {path} of the intern {intern}?",
)
async def delete_file(
    server: Server,
    intern: InternName,
    path: FilePath,
    recursive: Annotated[
        bool, Option("--recursive", help="Delete a folder and everything in it.")
    ] = False,
) -> Record:
    """Delete a file, or a folder."""
    async with _opened(server, intern) as there:
        await there.remove(path, recursive=recursive)
    return Record({"path": path, "deleted": True})


@archives_app.command("list", epilog=examples("tollhouse intern archives list"))
def list_archives(data_dir: DataDir = None, config: Config = None, as_json: Json = False) -> None:
    """List the archives, the oldest first."""
    from tollhouse.cli.interns.archives import listed

    found = asyncio.run(listed(_archives(data_dir, config)))
    columns = [
        *(column("intern_id", "intern"), "name", column("archived_at", "archived")),
        *("bytes", column("workspace_id", "workspace")),
    ]
    print_result(Table(found, columns), as_json=as_json)


@archives_app.command(
    "export",
    epilog=examples(
        "tollhouse intern archives export 283d7485-3786-4ce7-a204-22956e9a99c5 ada.tar.zst",
        "tollhouse intern archives export ada - | zstd -d | tar -t",
    ),
)
def export_archive(
    intern: Reference,
    file: Annotated[str, Argument(metavar="FILE", help="File to write; - is standard output.")],
    force: Force = False,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Write an archive, a tar.zst, to a file, which appears when it is complete."""
    from tollhouse.cli.interns.archives import exported

    target = None if file == "-" else Path(file)
    size = asyncio.run(exported(_archives(data_dir, config), intern, target, force=force))
    shown = (
        AlreadyWritten(f"{size} bytes") if target is None else Record({"file": file, "bytes": size})
    )
    print_result(shown, as_json=as_json)


@archives_app.command("unpack", epilog=examples("tollhouse intern archives unpack ada ./ada-files"))
def unpack_archive(
    intern: Reference,
    folder: Annotated[
        Path, Argument(metavar="FOLDER", help="Folder to create; it must not exist.")
    ],
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make a folder of an archive: nothing outside of it, no devices, no rights of others."""
    from tollhouse.cli.interns.archives import unpacked

    asyncio.run(unpacked(_archives(data_dir, config), intern, folder))
    print_result(Record({"folder": str(folder)}), as_json=as_json)


def _archives(data_dir: Path | None, config: Path | None) -> "ArchiveStore":
    from tollhouse.apps.blobs import open_archives

    return open_archives(load_settings(data_dir, config))


@asynccontextmanager
async def _opened(server: Server, intern: str) -> AsyncGenerator["InternFiles"]:
    from tollhouse.cli.interns.daemon import fetch_access
    from tollhouse.cli.interns.files import open_files

    async with open_files(await fetch_access(server, await find_intern(server, intern))) as files:
        yield files
