"""`tollhouse vault`: secrets that interns' requests receive. Values go in and never come out."""

import sys
from typing import Annotated

from typer import Argument, Option

from tollhouse.cli.client import Server
from tollhouse.cli.control import CommandGroup, changes
from tollhouse.cli.options import Account
from tollhouse.cli.output import Column, Item, Record, Report, Table, column
from tollhouse.cli.references import intern_id, resource_id
from tollhouse.cli.values import one_line, path_segment

app = CommandGroup(
    "vault",
    "Secrets that interns' requests receive. They belong to the workspace of the API key in "
    "TOLLHOUSE_API_KEY; `import` and `rotate-kek` are an operator's.",
    by_key=True,
)

ROTATE_SECONDS = 3_600.0
"""Every vault's key is wrapped anew, perhaps by a program far away."""
MOST_IMPORTED_BYTES = 128 * 1024 * 1024

Name = Annotated[
    str,
    Argument(
        metavar="NAME",
        help="The secret's name: lower-case letters, digits and single underscores, a letter "
        "first.",
    ),
]
OfIntern = Annotated[
    str | None,
    Option(
        "--intern", metavar="INTERN", help="Use this intern's own vault instead of the workspace's."
    ),
]
Intern = Annotated[str, Argument(metavar="INTERN", help="Name or id of the intern.")]


def hosts_of(secret: Item) -> str | None:
    """Return the hosts that a secret is bound to; None for none."""
    hosts = secret["hosts"]
    return None if hosts is None else ", ".join(hosts)


_NO_HOST = "bound to no host"
_OWNERS = {"intern": "intern's own", "attached": "attached", "workspace": "workspace's"}
_SHOWN_DIGITS = len("sha256:") + 12
_HOSTS = Column("hosts", hosts_of)
_FINGERPRINT = Column(
    "fingerprint", lambda secret: secret["fingerprint"], short=lambda text: text[:_SHOWN_DIGITS]
)
_LISTED = ("name", _HOSTS, _FINGERPRINT, column("created_at", "created"))


@app.control(
    "set",
    "tollhouse vault set github_token --host api.github.com",
    "tollhouse vault set crm_key --host crm.example --host eu.crm.example --value-file crm.txt",
    "tollhouse vault set crm_key --host crm.example --intern ada --value-file -",
    surplus="there is an argument too many. A value is none: other users of the machine could see "
    "it. Type it when asked, pipe it in, or use --value-file.",
)
async def set_(
    server: Server,
    name: Name,
    host: Annotated[
        list[str],
        Option(
            metavar="HOST",
            help="A host that may receive it, such as api.example.com; may be repeated.",
        ),
    ],
    intern: OfIntern = None,
    value_file: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Where the value stands, without the end of its line; - is standard input. "
            "Unless given it is asked for on a terminal, and read from standard input elsewhere.",
        ),
    ] = None,
) -> Report:
    """Store a secret and the hosts that may receive it, in place of the one of this name.

    The value is asked for, or read; it is never an argument. Nobody can show it again.
    """
    from tollhouse.cli.vault_secrets import host_warning, read_value, value_warning

    path = f"{await _vault(server, intern)}/{path_segment(name)}"
    for each in host:
        if doubt := host_warning(each):
            _warn(f"{each}: {doubt}; binding a secret to a host is trust in it")
    value = read_value(value_file, one_line(name)).reveal()
    if doubt := value_warning(value):
        _warn(f"{name}: {doubt}")
    body = {"value": value, "hosts": host}
    stored = (await server.send("PUT", path, body))["data"]
    return Report(stored, Record({**stored, "hosts": hosts_of(stored)}))


def _warn(text: str) -> None:
    print(one_line(f"warning: {text}"), file=sys.stderr, flush=True)


@app.control("list", "tollhouse vault list", "tollhouse vault list --intern ada --json")
async def list_(server: Server, intern: OfIntern = None) -> Table:
    """List the secrets of the workspace, or an intern's own, by name; never a value."""
    return Table(await server.list_all(await _vault(server, intern)), _LISTED)


@app.control(
    "delete",
    "tollhouse vault delete github_token",
    "tollhouse vault delete crm_key --intern ada",
    confirm="Delete the secret {name}?",
)
async def delete(server: Server, name: Name, intern: OfIntern = None) -> Record:
    """Delete a secret; no request receives it from then on."""
    await server.send("DELETE", f"{await _vault(server, intern)}/{path_segment(name)}")
    return Record({"name": name, "deleted": True})


@app.control("copy", "tollhouse vault copy INTERN github_token crm_key")
async def copy(
    server: Server,
    intern: Intern,
    names: Annotated[
        list[str], Argument(metavar="NAME...", help="Secrets of the workspace, 1 to 100.")
    ],
) -> Table:
    """Copy secrets of the workspace into an intern's own vault, all of them or none.

    Its own ones of the same names are replaced. Later changes in the workspace do not reach copies.
    """
    path = f"{await _vault(server, intern)}/copy"
    return Table((await server.send("POST", path, {"names": names}))["data"], _LISTED)


@app.control("effective", "tollhouse vault effective ada")
async def effective(server: Server, intern: Intern) -> Table:
    """List the secrets that an intern's requests receive, one for each name.

    Its own come first, then those of a vault that is attached to it, then the workspace's.
    """
    found = await server.list_all(await _effective(server, intern))
    return Table(found, ["name", "scope", _HOSTS, _FINGERPRINT])


@app.control("why", "tollhouse vault why INTERN api.github.com")
async def why(
    server: Server,
    intern: Intern,
    host: Annotated[str, Argument(metavar="HOST", help="Such as api.example.com.")],
) -> Table:
    """Say of each secret whether an intern's request to a host receives it, and why."""
    found = await server.list_all(await _effective(server, intern), explain=True, host=host)
    sent = Column("sent", lambda secret: secret["verdict"] == "released")
    because = Column("why", lambda secret: verdict(secret, host))
    return Table(found, ["name", "scope", sent, because, Column("hidden", hidden)])


@app.control(
    "import",
    "tollhouse vault import old.json --workspace default",
    "tollhouse vault import - --workspace lab --account acme",
    by_key=False,
)
async def import_(
    server: Server,
    file: Annotated[
        str,
        Argument(
            metavar="FILE",
            help="A JSON object of names and values, or NAME=VALUE in each line, the value as it "
            "stands, quotes too. - reads standard input.",
        ),
    ],
    workspace: Annotated[str, Option(metavar="WORKSPACE", help="Id or slug of their workspace.")],
    account: Account = None,
) -> Report:
    """Take in secrets of an older store, bound to no host; needs an operator.

    No request receives them before they are stored again with hosts, or the setting
    vault.release_unbound is on. A secret with hosts stays as it is.
    """
    from tollhouse.cli.vault_secrets import read_secrets, text_in

    shown = "standard input" if file == "-" else file
    secrets = read_secrets(text_in(file, MOST_IMPORTED_BYTES), shown)
    found = await resource_id(server, "workspace", workspace, account)
    body = {"workspace_id": found, "secrets": secrets, **changes(account_id=account)}
    done = (await server.send("POST", "/vault-imports", body))["data"]
    rows = [{"name": name, "result": "imported"} for name in done["imported"]]
    rows += [{"name": name, "result": "kept, it has hosts"} for name in done["kept"]]
    return Report(done, Table(rows, ["name", "result"]))


@app.control("rotate-kek", "tollhouse vault rotate-kek", by_key=False)
async def rotate_kek(server: Server) -> Record:
    """Wrap every vault's key with a new key-encryption key; needs an operator.

    Nothing stops meanwhile. What was interrupted is done again by repeating the command.
    """
    done = await server.send("POST", "/vault-keys/rotate", seconds=ROTATE_SECONDS)
    return Record(done["data"])


async def _vault(server: Server, intern: str | None) -> str:
    if intern is None:
        return "/vault/secrets"
    return f"/vault/interns/{path_segment(await intern_id(server, intern))}/secrets"


async def _effective(server: Server, intern: str) -> str:
    return f"/vault/interns/{path_segment(await intern_id(server, intern))}/effective-secrets"


def verdict(secret: Item, host: str) -> str:
    """Return in words why a secret goes to a host, or why not."""
    bound = hosts_of(secret)
    match secret["verdict"]:
        case "released" if bound is None:
            return f"{_NO_HOST}, and such secrets go to any (vault.release_unbound)"
        case "released":
            return f"bound to {host}"
        case "unbound":
            return f"{_NO_HOST}: store it again with --host"
        case "other_host":
            return f"bound to {bound}"
        case other:
            return str(other)


def hidden(secret: Item) -> str | None:
    """Return the secrets of the same name that lost against one, and where they are."""

    def bound(lost: Item) -> str:
        hosts = hosts_of(lost)
        return _NO_HOST if hosts is None else f"bound to {hosts}"

    lost = [f"{_OWNERS[each['scope']]} ({bound(each)})" for each in secret["hidden"]]
    return "; ".join(lost) or None
