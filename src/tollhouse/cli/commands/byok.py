"""`tollhouse byok`: customers' own keys of providers. Keys go in and never come out."""

from collections.abc import Sequence
from typing import Annotated, Literal

from typer import Argument, Option

from tollhouse.cli.client import Server
from tollhouse.cli.control import CommandGroup, changes, require_changes
from tollhouse.cli.options import Account
from tollhouse.cli.output import Column, Item, Record, Table, column
from tollhouse.cli.references import exactly_one, key_hash, resource_id
from tollhouse.cli.values import one_line, path_segment
from tollhouse.kernel.errors import StartError

app = CommandGroup(
    "byok",
    "Own keys of providers (bring your own key). Requests of their workspace use them before the "
    "gateway's own keys, and the provider bills their owner.",
)

OwnKey = Annotated[
    str, Argument(metavar="OWN_KEY", help="The own key's id, its name, or its label.")
]
Workspace = Annotated[
    str | None,
    Option(
        "--workspace",
        metavar="WORKSPACE",
        help="Id, slug or name of the workspace; the default one unless given.",
    ),
]
KeyFile = Annotated[
    str | None,
    Option(
        "--key-file",
        metavar="FILE",
        help="Where the key stands, without the end of its line; - is standard input.",
    ),
]
Name = Annotated[str | None, Option(metavar="NAME", help='What people call it; "" removes it.')]
Fallback = Annotated[
    bool | None,
    Option(
        "--fallback/--first",
        help="Ask it after the gateway's own endpoints, or before them, as a new key is.",
    ),
]
Required = Annotated[
    bool | None,
    Option(
        "--required/--not-required",
        help="Whether the models that it is for never use the gateway's own key at this provider.",
    ),
]
Only = Annotated[
    bool | None,
    Option(
        "--byok-only/--not-byok-only", help="Whether no model at all does; not with --fallback."
    ),
]
Disabled = Annotated[
    bool | None, Option("--disabled/--enabled", help="Keep it and do not use it, or use it again.")
]
Models = Annotated[
    list[str] | None,
    Option("--model", metavar="MODEL", help="A model that it is for; may be repeated."),
]
Users = Annotated[
    list[str] | None,
    Option("--user", metavar="USER", help="A user whose keys may use it; may be repeated."),
]
Keys = Annotated[
    list[str] | None,
    Option("--for-key", metavar="KEY", help="An API key that may use it; may be repeated."),
]
Region = Annotated[
    Literal["global", "europe", "us"] | None,
    Option(help="Where your account at the provider works. Kept; has no effect here."),
]
Zdr = Annotated[
    bool | None,
    Option("--zdr/--no-zdr", help="Whether your account at the provider keeps nothing."),
]
Place = Annotated[
    int | None,
    Option("--place", min=0, help="Its place among the keys of its provider; the lowest is first."),
]
_SURPLUS = (
    "there is an argument too many. A key is none: other users of the machine could see it. Type "
    "it when asked, pipe it in, or use --key-file."
)
_SHOWN = 8


@app.control("list", "tollhouse byok list", "tollhouse byok list --provider openai --json")
async def list_(
    server: Server,
    workspace: Annotated[
        str | None, Option("--workspace", metavar="WORKSPACE", help="Only this workspace.")
    ] = None,
    provider: Annotated[
        str | None, Option(metavar="PROVIDER", help="Only this provider's, by its slug.")
    ] = None,
    account: Account = None,
) -> Table:
    """List own keys of providers in the order in which they are asked; never a key's text.

    The last column says why the provider did not take a key, where it did not.
    """
    found = await _all(server, workspace, provider, account)
    return Table(
        found,
        [
            Column("id", lambda key: key["id"], short=lambda text: text[:_SHOWN]),
            *("provider", "name", "label", "workspace"),
            Column("used", used),
            column("allowed_models", "models"),
            *(column("last_error", "last error"), column("last_error_at", "at")),
        ],
    )


@app.control(
    "add",
    "tollhouse byok add openai",
    "tollhouse byok add anthropic --key-file key.txt --name team --required",
    "tollhouse byok add openai --fallback --model acme/large --workspace lab < key.txt",
    surplus=_SURPLUS,
)
async def add(
    server: Server,
    provider: Annotated[
        str, Argument(metavar="PROVIDER", help="The provider's slug in the settings.")
    ],
    key_file: KeyFile = None,
    name: Name = None,
    fallback: Fallback = None,
    required: Required = None,
    byok_only: Only = None,
    disabled: Disabled = None,
    model: Models = None,
    user: Users = None,
    for_key: Keys = None,
    region: Region = None,
    zdr: Zdr = None,
    place: Place = None,
    workspace: Workspace = None,
    account: Account = None,
) -> Record:
    """Store an own key of a provider; requests use it from now on.

    The key is asked for, or read from --key-file or standard input; it is never an argument. Nobody
    can show it again. Azure, Bedrock and Vertex need more than one text: give a JSON object.
    """
    from tollhouse.cli.vault_secrets import read_value

    place_in = None
    if workspace is not None:
        place_in = await resource_id(server, "workspace", workspace, account)
    body = changes(
        provider=provider,
        name=name or None,
        is_fallback=fallback,
        is_required=required,
        is_byok_only=byok_only,
        disabled=disabled,
        allowed_models=model or None,
        allowed_user_ids=await _users(server, user, account),
        allowed_api_key_hashes=await _hashes(server, for_key, account),
        declared_region=region,
        declared_zdr=zdr,
        sort_order=place,
        workspace_id=place_in,
        account_id=account,
    )
    key = read_value(key_file, f"the key of {one_line(provider)}")
    return Record((await server.send("POST", "/byok", {**body, "key": key.reveal()}))["data"])


@app.control(
    "set",
    "tollhouse byok set team --disabled",
    "tollhouse byok set team --new-key < key.txt",
    "tollhouse byok set team --required --any-model --place 0",
    surplus=_SURPLUS,
)
async def set_(
    server: Server,
    own_key: OwnKey,
    new_key: Annotated[
        bool, Option("--new-key", help="Ask for another key, or read it, in place of this one.")
    ] = False,
    key_file: KeyFile = None,
    name: Name = None,
    fallback: Fallback = None,
    required: Required = None,
    byok_only: Only = None,
    disabled: Disabled = None,
    model: Models = None,
    any_model: Annotated[bool, Option("--any-model", help="For every model again.")] = False,
    user: Users = None,
    any_user: Annotated[bool, Option("--any-user", help="For every user again.")] = False,
    for_key: Keys = None,
    any_key: Annotated[bool, Option("--any-key", help="For every API key again.")] = False,
    region: Region = None,
    zdr: Zdr = None,
    place: Place = None,
    account: Account = None,
) -> Record:
    """Change an own key of a provider; what is not given stays.

    All of it is in force at once. Requests under way end with the key that they began with.
    """
    from tollhouse.cli.vault_secrets import read_value

    body = changes(
        is_fallback=fallback,
        is_required=required,
        is_byok_only=byok_only,
        disabled=disabled,
        declared_region=region,
        declared_zdr=zdr,
        sort_order=place,
        allowed_models=model or None,
        allowed_user_ids=await _users(server, user, account),
        allowed_api_key_hashes=await _hashes(server, for_key, account),
    )
    if name is not None:
        body["name"] = name or None
    for field, cleared, option in (
        ("allowed_models", any_model, "model"),
        ("allowed_user_ids", any_user, "user"),
        ("allowed_api_key_hashes", any_key, "key"),
    ):
        if cleared and field in body:
            raise StartError(f"--any-{option} and a list of them: give one of them")
        body |= {field: None} if cleared else {}
    replaces = new_key or key_file is not None
    if not replaces:
        require_changes(body)
    found = await _find(server, own_key, account)
    if replaces:
        body["key"] = read_value(key_file, f"the key of {found['provider']}").reveal()
    query = changes(account_id=account)
    return Record((await server.send("PATCH", _path(found), body, query=query))["data"])


@app.control("remove", "tollhouse byok remove team", confirm="Remove the own key {own_key}?")
async def remove(server: Server, own_key: OwnKey, account: Account = None) -> Record:
    """Remove an own key of a provider; no request begins with it from then on."""
    found = await _find(server, own_key, account)
    await server.send("DELETE", _path(found), query=changes(account_id=account))
    return Record({"id": found["id"], "label": found["label"], "deleted": True})


def used(key: Item) -> str:
    """Return in words when a key is asked."""
    if key["disabled"]:
        return "disabled"
    words = ["fallback" if key["is_fallback"] else "first"]
    words += ["required"] if key["is_required"] else []
    words += ["byok only"] if key["is_byok_only"] else []
    return ", ".join(words)


async def _all(
    server: Server, workspace: str | None, provider: str | None, account: str | None
) -> list[Item]:
    places = await server.list_all("/workspaces", account_id=account)
    if workspace is not None:
        wanted = await resource_id(server, "workspace", workspace, account)
        places = [each for each in places if each["id"] == wanted]
    found: list[Item] = []
    for each in places:
        keys = await server.list_all(
            "/byok", workspace_id=each["id"], provider=provider, account_id=account
        )
        found += [{**key, "workspace": each["slug"]} for key in keys]
    return found


async def _find(server: Server, reference: str, account: str | None) -> Item:
    keys = await _all(server, None, None, account)
    found = [key for key in keys if key["id"] == reference] or [
        key
        for key in keys
        if reference in {key["name"], key["label"]} or key["id"][:_SHOWN] == reference
    ]
    shown = one_line(reference)
    return exactly_one(
        found,
        none=f"No such own key: {shown!r}; `tollhouse byok list` shows them.",
        several=f"several own keys are called {shown!r}: name one by its id",
    )


def _path(key: Item) -> str:
    return f"/byok/{path_segment(key['id'])}"


async def _users(
    server: Server, given: Sequence[str] | None, account: str | None
) -> list[str] | None:
    if not given:
        return None
    return [await resource_id(server, "user", each, account) for each in given]


async def _hashes(
    server: Server, given: Sequence[str] | None, account: str | None
) -> list[str] | None:
    if not given:
        return None
    return [await key_hash(server, each, account) for each in given]
