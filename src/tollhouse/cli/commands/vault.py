"""`tollhouse vault`: secrets that interns' requests receive. Values go in and never come out."""

import sys
from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import changes, control_command, noun
from tollhouse.cli.options import Account, yes_to
from tollhouse.cli.output import Listing, Record, Report, field, one_line
from tollhouse.cli.references import intern_id, workspace_id
from tollhouse.cli.values import segment

app = noun(
    "vault",
    "Secrets that interns' requests receive. They belong to the workspace of the API key in "
    "TOLLHOUSE_API_KEY; `import` and `rotate-kek` are an operator's.",
)

ROTATE_SECONDS = 3_600.0
"""Every vault's key is wrapped anew, perhaps by a program far away."""
MOST_IMPORTED_BYTES = 128 * 1024 * 1024

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The secret's name: lower-case letters, digits and single underscores, a letter "
        "first.",
    ),
]
OfIntern = Annotated[
    str | None,
    typer.Option(
        "--intern", metavar="INTERN", help="Use this intern's own vault instead of the workspace's."
    ),
]
Intern = Annotated[str, typer.Argument(metavar="INTERN", help="Name or id of the intern.")]


@control_command(
    app,
    "set",
    "tollhouse vault set github_token --host api.github.com",
    "tollhouse vault set crm_key --host crm.example --host eu.crm.example --value-file crm.txt",
    "tollhouse vault set crm_key --host crm.example --intern ada --value-file -",
    by_key=True,
    surplus="there is an argument too many. A value is none: other users of the machine could see "
    "it. Type it when asked, pipe it in, or use --value-file.",
)
async def set_(
    server: Server,
    name: Name,
    host: Annotated[
        list[str],
        typer.Option(
            "--host",
            metavar="HOST",
            help="A host that may receive it, such as api.example.com; may be repeated.",
        ),
    ],
    intern: OfIntern = None,
    value_file: Annotated[
        str | None,
        typer.Option(
            "--value-file",
            metavar="FILE",
            help="Where the value stands, without the end of its line; - is standard input. "
            "Unless given it is asked for on a terminal, and read from standard input elsewhere.",
        ),
    ] = None,
) -> Report:
    """Store a secret and the hosts that may receive it, in place of the one of this name.

    The value is asked for, or read; it is never an argument. Nobody can show it again.
    """
    from tollhouse.cli.vaults.trust import doubt_about, doubt_about_value
    from tollhouse.cli.vaults.value import read_value
    from tollhouse.cli.vaults.views import secret_report

    path = f"{await _vault(server, intern)}/{segment(name)}"
    for each in host:
        if doubt := doubt_about(each):
            _warn(f"{each}: {doubt}; binding a secret to a host is trust in it")
    value = read_value(value_file, one_line(name)).reveal()
    if doubt := doubt_about_value(value):
        _warn(f"{name}: {doubt}")
    body = {"value": value, "hosts": host}
    return secret_report((await server.send("PUT", path, body))["data"])


def _warn(text: str) -> None:
    print(one_line(f"warning: {text}"), file=sys.stderr, flush=True)


@control_command(
    app, "list", "tollhouse vault list", "tollhouse vault list --intern ada --json", by_key=True
)
async def list_(server: Server, intern: OfIntern = None) -> Listing:
    """List the secrets of the workspace, or an intern's own, by name; never a value."""
    from tollhouse.cli.vaults.views import secrets_listing

    return secrets_listing(await server.all_of(await _vault(server, intern)))


@control_command(
    app,
    "delete",
    "tollhouse vault delete github_token",
    "tollhouse vault delete crm_key --intern ada",
    by_key=True,
)
async def delete(
    server: Server,
    name: Name,
    intern: OfIntern = None,
    yes: Annotated[bool, yes_to("Delete the secret {name}?")] = False,
) -> Record:
    """Delete a secret; no request receives it from then on."""
    del yes  # it is asked before the server is
    await server.send("DELETE", f"{await _vault(server, intern)}/{segment(name)}")
    return Record({"name": name, "deleted": True})


@control_command(app, "copy", "tollhouse vault copy INTERN github_token crm_key", by_key=True)
async def copy(
    server: Server,
    intern: Intern,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Secrets of the workspace, 1 to 100.")
    ],
) -> Listing:
    """Copy secrets of the workspace into an intern's own vault, all of them or none.

    Its own ones of the same names are replaced. Later changes in the workspace do not reach copies.
    """
    from tollhouse.cli.vaults.views import secrets_listing

    path = f"{await _vault(server, intern)}/copy"
    return secrets_listing((await server.send("POST", path, {"names": names}))["data"])


@control_command(app, "effective", "tollhouse vault effective ada", by_key=True)
async def effective(server: Server, intern: Intern) -> Listing:
    """List the secrets that an intern's requests receive, one for each name.

    Its own come first, then those of a vault that is attached to it, then the workspace's.
    """
    from tollhouse.cli.vaults.views import effective_listing

    return effective_listing(await server.all_of(await _effective(server, intern)))


@control_command(app, "why", "tollhouse vault why INTERN api.github.com", by_key=True)
async def why(
    server: Server,
    intern: Intern,
    host: Annotated[str, typer.Argument(metavar="HOST", help="Such as api.example.com.")],
) -> Listing:
    """Say of each secret whether an intern's request to a host receives it, and why."""
    from tollhouse.cli.vaults.views import why_listing

    found = await server.all_of(await _effective(server, intern), explain=True, host=host)
    return why_listing(found, host)


@control_command(
    app,
    "import",
    "tollhouse vault import old.json --workspace default",
    "tollhouse vault import - --workspace lab --account acme",
)
async def import_(
    server: Server,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A JSON object of names and values, or NAME=VALUE in each line, the value as it "
            "stands, quotes too. - reads standard input.",
        ),
    ],
    workspace: Annotated[
        str,
        typer.Option("--workspace", metavar="WORKSPACE", help="Id or slug of their workspace."),
    ],
    account: Account = None,
) -> Report:
    """Take in secrets of an older store, bound to no host; needs an operator.

    No request receives them before they are stored again with hosts, or the setting
    vault.release_unbound is on. A secret with hosts stays as it is.
    """
    from tollhouse.cli.vaults.old_store import read_secrets
    from tollhouse.cli.vaults.value import text_in

    shown = "standard input" if file == "-" else file
    secrets = read_secrets(text_in(file, MOST_IMPORTED_BYTES), shown)
    found = await workspace_id(server, workspace, account)
    body = {"workspace_id": found, "secrets": secrets, **changes(account_id=account)}
    done = (await server.send("POST", "/vault-imports", body))["data"]
    rows = [{"name": name, "result": "imported"} for name in done["imported"]]
    rows += [{"name": name, "result": "kept, it has hosts"} for name in done["kept"]]
    return Report(done, Listing(rows, [field("name"), field("result")]))


@control_command(app, "rotate-kek", "tollhouse vault rotate-kek")
async def rotate_kek(server: Server) -> Record:
    """Wrap every vault's key with a new key-encryption key; needs an operator.

    Nothing stops meanwhile. What was interrupted is done again by repeating the command.
    """
    done = await server.send("POST", "/vault-keys/rotate", seconds=ROTATE_SECONDS)
    return Record(done["data"])


async def _vault(server: Server, intern: str | None) -> str:
    if intern is None:
        return "/vault/secrets"
    return f"/vault/interns/{segment(await intern_id(server, intern))}/secrets"


async def _effective(server: Server, intern: str) -> str:
    return f"/vault/interns/{segment(await intern_id(server, intern))}/effective-secrets"
