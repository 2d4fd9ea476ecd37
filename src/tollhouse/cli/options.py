"""Options that several commands have."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from typer import Argument, Option

from tollhouse.cli.client import Server
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.output import Record
from tollhouse.cli.values import one_line
from tollhouse.kernel.errors import StartError

Json = Annotated[bool, Option("--json", help="Print JSON, and nothing else, on stdout.")]
DataDir = Annotated[
    Path | None,
    Option(
        "--data-dir",
        metavar="DIR",
        help="The data folder; TOLLHOUSE_DATA_DIR, or the platform's own, unless given.",
    ),
]
Config = Annotated[
    Path | None,
    Option(
        "--config",
        metavar="FILE",
        help="The configuration file; TOLLHOUSE_CONFIG, or tollhouse.yaml in the data folder, "
        "unless given.",
    ),
]
BaseUrl = Annotated[
    str | None,
    Option(
        "--base-url",
        metavar="URL",
        help="Talk to the server at this address; TOLLHOUSE_BASE_URL unless given. "
        "Without either the data folder's own server is meant.",
    ),
]
ApiKey = Annotated[
    str | None,
    Option(
        "--api-key",
        metavar="KEY",
        help="The key for the server at the base URL. Other users of the machine can "
        "see it here; TOLLHOUSE_API_KEY keeps it to yourself.",
    ),
]
DatabaseUrl = Annotated[
    str | None,
    Option(
        "--database-url",
        metavar="URL",
        help="PostgreSQL instead of the SQLite file in the data folder. A password is better "
        "given in TOLLHOUSE_DATABASE_URL.",
    ),
]
Account = Annotated[
    str | None,
    Option(
        "--account",
        metavar="ACCOUNT",
        help="The account that is meant, by id or name; TOLLHOUSE_ACCOUNT, or what `tollhouse "
        "accounts use` chose, unless given. Needs an operator.",
    ),
]
OneAccount = Annotated[
    str | None, Option("--account", metavar="ACCOUNT", help="Only this account, by id or name.")
]
"""Where every account is meant unless one is given."""

Switch = Literal["on", "off"]
"""Something that an operator switches."""

Programme = Annotated[
    Switch | None,
    Option("--programme", help="Switch interns and vaults on or off; for an operator."),
]
VaultWrites = Annotated[
    Switch | None,
    Option(
        "--vault-writes",
        help="Whether secrets may be stored and deleted. Their use continues. For an operator.",
    ),
]
Output = Annotated[
    str | None,
    Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to this file, which appears when it is complete; - is standard output.",
    ),
]
WorkspaceId = Annotated[
    str, Argument(metavar="WORKSPACE", help="Id, slug or name of the workspace.")
]
UserId = Annotated[str, Argument(metavar="USER", help="Id or name of the user.")]
NewName = Annotated[str | None, Option(metavar="NAME", help="Its new name.")]
Description = Annotated[str | None, Option(metavar="TEXT", help='What it is for; "" removes it.')]
InternName = Annotated[str, Argument(metavar="INTERN", help="The intern's name or id.")]
Force = Annotated[bool, Option("--force", help="Replace an existing file.")]
PlainHttp = Annotated[
    Switch | None,
    Option(
        "--plain-http",
        help="Whether its programs and interns may reach hosts without TLS; default: off.",
    ),
]


def confirm_option(question: str) -> Any:  # noqa: ANN401 - an annotation that only typer reads
    """Return the option `--yes` of a command that asks on a terminal without it.

    The question has the names of the command's arguments in braces.
    """

    def confirmed(context: typer.Context, yes: bool) -> bool:
        if yes or not sys.stdin.isatty():
            return yes
        print(one_line(question.format(**context.params)), "[y/N] ", end="", file=sys.stderr)
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise CommandFailed("nothing was deleted")
        return True

    return Option("--yes", callback=confirmed, help="Do not ask for confirmation.")


def switch_fields(
    programme: Switch | None, vault_writes: Switch | None, plain_http: Switch | None = None
) -> dict[str, bool]:
    """Return the fields of a body that were given."""
    given = {"intern_programme": programme, "vault_writes": vault_writes, "plain_http": plain_http}
    return {name: value == "on" for name, value in given.items() if value is not None}


PolicyFile = Annotated[
    Path | None,
    Option(
        "--policy",
        metavar="FILE",
        help="YAML or JSON that says what requests may reach and hold, and which guardrails judge "
        "them, in place of the policy before; an empty file takes it away. docs/guide/policies.md "
        "lists the fields.",
    ),
]


def read_policy(path: Path) -> dict[str, Any]:
    """Return a policy file's fields; the server says what is wrong with them."""
    import yaml

    try:
        found: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"{path} cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StartError(
            f"{path} is neither YAML nor JSON: {' '.join(str(error).split())}"
        ) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise StartError(f"{path} must hold a mapping, such as `blocked_models: [acme/*]`")
    return cast("dict[str, Any]", found)


async def with_policy(
    server: Server,
    path: str,
    body: Mapping[str, object] | None = None,
    policy: Path | None = None,
    **query: object,
) -> Record:
    """Show something with its policy, after the fields and the policy that are given are set."""
    if body:
        found = await server.send("PATCH", path, body, query=query)
    else:
        found = await server.get(path, **query)
    if policy is not None:
        held = await server.send("PUT", f"{path}/policy", read_policy(policy), query=query)
    else:
        held = await server.get(f"{path}/policy", **query)
    return Record({**found["data"], "policy": held["data"]})
