"""`tollhouse intern archives`: what is left of the workspaces of deleted interns.

They are read where they are stored, so that no server has to run: who may read the store may read
them.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tollhouse.cli.client import load_settings
from tollhouse.cli.control import examples, noun
from tollhouse.cli.options import Config, DataDir, Force, Json
from tollhouse.cli.output import Listing, Record, Written, field, show, style
from tollhouse.cli.target import Folder

if TYPE_CHECKING:
    from tollhouse.interns.archives import Archives

app = noun(
    "archives",
    "The archived workspaces of deleted interns; for an operator, on the server's machine.",
)

Reference = Annotated[
    str, typer.Argument(metavar="INTERN", help="The intern's id, or its name if that is one's own.")
]


@app.command("list", epilog=examples("tollhouse intern archives list"))
def list_(data_dir: DataDir = None, config: Config = None, as_json: Json = False) -> None:
    """List the archives, the oldest first."""
    from tollhouse.cli.interns.archives import listed

    found = asyncio.run(listed(_archives(data_dir, config)))
    columns = [
        field("intern_id", "intern"),
        field("name"),
        field("archived_at", "archived"),
        field("bytes"),
        field("workspace_id", "workspace"),
    ]
    show(Listing(found, columns), style(as_json=as_json))


@app.command(
    "export",
    epilog=examples(
        "tollhouse intern archives export 283d7485-3786-4ce7-a204-22956e9a99c5 ada.tar.zst",
        "tollhouse intern archives export ada - | zstd -d | tar -t",
    ),
)
def export(
    intern: Reference,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File to write; - is standard output.")
    ],
    force: Force = False,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Write an archive, a tar.zst, to a file, which appears when it is complete."""
    from tollhouse.cli.interns.archives import exported

    target = None if file == "-" else Path(file)
    size = asyncio.run(exported(_archives(data_dir, config), intern, target, force=force))
    shown = Written(f"{size} bytes") if target is None else Record({"file": file, "bytes": size})
    show(shown, style(as_json=as_json))


@app.command("unpack", epilog=examples("tollhouse intern archives unpack ada ./ada-files"))
def unpack(
    intern: Reference,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to create; it must not exist.")
    ],
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make a folder of an archive: nothing outside of it, no devices, no rights of others."""
    from tollhouse.cli.interns.archives import unpacked

    asyncio.run(unpacked(_archives(data_dir, config), intern, folder))
    show(Record({"folder": str(folder)}), style(as_json=as_json))


def _archives(data_dir: Path | None, config: Path | None) -> "Archives":
    from tollhouse.apps.archiving import open_archives

    return open_archives(load_settings(Folder(data_dir, config)))
