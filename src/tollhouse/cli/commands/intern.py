"""`tollhouse intern`: hosted agents, each in a sandbox of its own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.commands import intern_archives
from tollhouse.cli.control import changes, control_command, noun, some
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.interns.lookup import all_interns, find_intern, path_of
from tollhouse.cli.options import yes_to
from tollhouse.cli.output import (
    Column,
    Listing,
    Record,
    Report,
    Written,
    field,
    one_line,
    visible,
)

if TYPE_CHECKING:
    from tollhouse.cli.interns.access import Access

app = noun(
    "intern",
    "Interns: hosted agents, each in a sandbox of its own. They belong to the workspace of the API "
    "key in TOLLHOUSE_API_KEY.",
)

files = noun("files", "The files of a running intern, in its workspace.")
app.add_typer(files)
app.add_typer(intern_archives.app)

Name = Annotated[str, typer.Argument(metavar="INTERN", help="The intern's name or id.")]
_NOT_FOUND = 404
_TIMED_OUT = 408
FilePath = Annotated[
    str, typer.Argument(metavar="PATH", help="Of the file, in the intern's workspace.")
]
Description = Annotated[
    str | None, typer.Option(metavar="TEXT", help='What it is for; "" removes it.')
]
Instructions = Annotated[
    str | None,
    typer.Option("--instructions", metavar="TEXT", help="Its standing instructions."),
]
InstructionsFile = Annotated[
    Path | None,
    typer.Option("--instructions-file", metavar="FILE", help="The same, from a file."),
]
NoWait = Annotated[
    bool,
    typer.Option("--no-wait", help="Return when the request is accepted, not when it is done."),
]


@control_command(
    app,
    "create",
    "tollhouse intern create ada --provision",
    'tollhouse intern create bob --description "Reads the mail" --instructions-file bob.md',
    "tollhouse intern create eve --vault ID --json",
    by_key=True,
)
async def create(
    server: Server,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="2 to 17 characters: lower-case letters, digits and single hyphens, a letter "
            "first.",
        ),
    ],
    description: Description = None,
    instructions: Instructions = None,
    instructions_file: InstructionsFile = None,
    vault: Annotated[
        str | None,
        typer.Option(
            "--vault", metavar="ID", help="Another intern's vault, whose secrets it receives too."
        ),
    ] = None,
    provision: Annotated[bool, typer.Option("--provision", help="Start it at once.")] = False,
    no_wait: NoWait = False,
) -> Report:
    """Make an intern with a vault of its own. Repeating the command makes no second one."""
    from tollhouse.cli.interns.views import intern_report

    body = changes(
        name=name,
        description=description or None,
        instructions=_instructions(instructions, instructions_file),
        vault_id=vault,
    )
    made = await server.send("POST", "/interns", {**body, "provision": provision})
    if provision and not no_wait:
        return await _settled(server, made["id"])
    note = None if provision else f"Have it run with: tollhouse intern provision {made['name']}"
    return intern_report(made, note)


@control_command(
    app,
    "list",
    "tollhouse intern list",
    "tollhouse intern list --status running --status failed",
    by_key=True,
)
async def list_(
    server: Server,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="Only those; may be repeated."),
    ] = None,
) -> Listing:
    """List the interns of the workspace, newest first."""
    from tollhouse.cli.interns.views import interns_listing

    return interns_listing(await all_interns(server, ",".join(status) if status else None))


@control_command(app, "show", "tollhouse intern show ada", by_key=True)
async def show(server: Server, intern: Name) -> Report:
    """Show an intern."""
    from tollhouse.cli.interns.views import intern_report

    return Report(*_shown(intern_report(await find_intern(server, intern))))


@control_command(
    app,
    "set",
    "tollhouse intern set ada --model openai/gpt-5",
    "tollhouse intern set ada --name grace --instructions-file grace.md",
    by_key=True,
)
async def set_(
    server: Server,
    intern: Name,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its new name.")] = None,
    description: Description = None,
    instructions: Instructions = None,
    instructions_file: InstructionsFile = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help='Its model; "" for the workspace\'s default.'),
    ] = None,
) -> Report:
    """Change the given fields of an intern; they apply from its next start."""
    from tollhouse.cli.interns.views import intern_report

    body = changes(name=name)
    given = _instructions(instructions, instructions_file)
    for each, text in (("description", description), ("instructions", given), ("model", model)):
        if text is not None:
            body[each] = text or None
    some(body)
    found = await find_intern(server, intern)
    return Report(*_shown(intern_report(await server.send("PATCH", path_of(found), body))))


@control_command(
    app,
    "provision",
    "tollhouse intern provision ada",
    "tollhouse intern provision ada --no-wait",
    by_key=True,
)
async def provision(server: Server, intern: Name, no_wait: NoWait = False) -> Report:
    """Start an intern: for the first time, after `suspend`, or after it failed."""
    from tollhouse.cli.interns.views import intern_report

    found = await find_intern(server, intern)
    await server.send("POST", f"{path_of(found)}/provision")
    if no_wait:
        return intern_report(await server.get(path_of(found)))
    return await _settled(server, found["id"])


@control_command(app, "suspend", "tollhouse intern suspend ada", by_key=True)
async def suspend(server: Server, intern: Name) -> Report:
    """Stop an intern and keep its files; `provision` starts it again."""
    found = await find_intern(server, intern)
    try:
        await server.send("POST", f"{path_of(found)}/suspend")
    except CommandFailed as error:
        if error.status != _TIMED_OUT:
            raise
        # It takes longer than a request may, and goes on.
    return await _settled(server, found["id"], leaving="running")


@control_command(
    app,
    "delete",
    "tollhouse intern delete ada",
    "tollhouse intern delete ada --lose-files",
    by_key=True,
)
async def delete(
    server: Server,
    intern: Name,
    lose_files: Annotated[
        bool,
        typer.Option("--lose-files", help="Delete it even if its files cannot be archived."),
    ] = False,
    no_wait: NoWait = False,
    yes: Annotated[bool, yes_to("Delete the intern {intern} with its vault?")] = False,
) -> Report:
    """Remove an intern with its vault; its files are archived first."""
    del yes  # it is asked before the server is
    found = await find_intern(server, intern)
    body = {"acknowledge_workspace_loss": lose_files}
    await server.send("DELETE", path_of(found), body)
    if not no_wait:
        return await _settled(server, found["id"])
    return _gone(found["id"], deleted=False)


@control_command(
    app,
    "logs",
    "tollhouse intern logs ada",
    "tollhouse intern logs ada --lines 1000 --json",
    by_key=True,
)
async def logs(
    server: Server,
    intern: Name,
    lines: Annotated[
        int,
        typer.Option("--lines", min=1, max=5_000, help="How many lines, counted from the last."),
    ] = 100,
) -> Listing:
    """Show an intern's log on the server: steps of its starts, failures, ends."""
    found = await find_intern(server, intern)
    told = await server.get(f"{path_of(found)}/logs", limit=lines)
    return Listing(told["data"], [field("at"), field("text", "what happened")])


@control_command(
    app,
    "attach",
    "tollhouse intern attach ada",
    "tollhouse intern attach ada --session build",
    "tollhouse intern attach ada < setup.sh",
    by_key=True,
)
async def attach(
    server: Server,
    intern: Name,
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="NAME", help="Which of its terminals; main unless given."
        ),
    ] = None,
) -> Written:
    """Attach to a shell of a running intern. Ctrl-] q leaves it, and it runs on.

    Where standard input is no terminal, it is a script that a shell of the intern runs: its output
    is this command's, and so is its exit code.
    """
    from tollhouse.cli.interns.terminal import attach as attach_to

    found = await find_intern(server, intern)

    async def renew() -> "Access":
        return await _access(server, found)

    code = await attach_to(
        await renew(), name=one_line(found["name"]), session=session, renew=renew
    )
    return Written("", exit_code=code)


@control_command(
    files,
    "list",
    "tollhouse intern files list ada",
    "tollhouse intern files list ada src",
    by_key=True,
)
async def list_files(
    server: Server,
    intern: Name,
    path: Annotated[str, typer.Argument(metavar="FOLDER", help="The workspace unless given.")] = "",
) -> Listing:
    """List what a folder holds, by name."""
    from tollhouse.cli.interns.files import opened

    async with opened(await _access(server, await find_intern(server, intern))) as there:
        found = await there.listed(path)
    name = Column("name", lambda each: visible(each["name"]))
    return Listing(found, [field("mode"), field("size"), field("modified_at", "modified"), name])


@control_command(
    files,
    "get",
    "tollhouse intern files get ada report.pdf",
    "tollhouse intern files get ada notes.txt -",
    by_key=True,
)
async def get_file(
    server: Server,
    intern: Name,
    path: FilePath,
    to: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="File to write; - is standard output. Default: the current folder."
        ),
    ] = ".",
) -> Written:
    """Download a file; it appears when it is complete."""
    from tollhouse.cli.interns.files import opened

    target = None if to == "-" else Path(to)
    async with opened(await _access(server, await find_intern(server, intern))) as there:
        size = await there.get(path, target)
    return Written("" if target is None else f"{size} bytes")


@control_command(
    files,
    "put",
    "tollhouse intern files put ada data.csv",
    "tollhouse intern files put ada - notes/today.txt < today.txt",
    by_key=True,
)
async def put_file(
    server: Server,
    intern: Name,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What to send; - is standard input.")],
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="Path in the workspace; a folder ends with a slash."),
    ] = "./",
) -> Report:
    """Send a file; it takes the place of what has its name once it is there as a whole."""
    from tollhouse.cli.interns.files import opened

    source = None if file == "-" else Path(file)
    if source is None and path.endswith("/"):
        message = "name the file: tollhouse intern files put INTERN - PATH"
        raise CommandFailed(message)
    async with opened(await _access(server, await find_intern(server, intern))) as there:
        found = await there.put(source, path)
    return Report(found, Record({**found, "name": visible(found["name"])}))


@control_command(
    files,
    "delete",
    "tollhouse intern files delete ada notes.txt",
    "tollhouse intern files delete ada build --recursive",
    by_key=True,
)
async def delete_file(
    server: Server,
    intern: Name,
    path: FilePath,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Delete a folder and everything in it.")
    ] = False,
    yes: Annotated[bool, yes_to("Delete {path} of the intern {intern}?")] = False,
) -> Record:
    """Delete a file, or a folder."""
    del yes  # it is asked before the server is
    from tollhouse.cli.interns.files import opened

    async with opened(await _access(server, await find_intern(server, intern))) as there:
        await there.remove(path, recursive=recursive)
    return Record({"path": path, "deleted": True})


async def _access(server: Server, intern: dict[str, Any]) -> "Access":
    from tollhouse.cli.interns.access import access_of

    return access_of(await server.get(f"{path_of(intern)}/daemon"))


def _shown(report: Report) -> tuple[Any, Any, int]:
    return report.item, report.text, 0


def _gone(intern_id: str, *, deleted: bool = True) -> Report:
    item = {"id": intern_id, "deleted": deleted}
    return Report(item, Record(item))


def _instructions(text: str | None, file: Path | None) -> str | None:
    if file is None:
        return text
    if text is not None:
        message = "give --instructions or --instructions-file, not both"
        raise CommandFailed(message)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise CommandFailed(f"{file}: cannot be read ({reason})") from None


async def _settled(server: Server, intern_id: str, *, leaving: str | None = None) -> Report:
    """Wait until nothing is under way with an intern, and show it."""
    from tollhouse.cli.interns.views import intern_report
    from tollhouse.cli.interns.watch import until_settled, watching

    async def look() -> dict[str, Any] | None:
        try:
            return await server.get(path_of({"id": intern_id}))
        except CommandFailed as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    with watching() as meter:
        intern = await until_settled(look, meter, leaving)
    return _gone(intern_id) if intern is None else intern_report(intern)
