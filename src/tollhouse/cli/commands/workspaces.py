"""`tollhouse workspaces`: the scopes inside an account."""

from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import changes, control_command, noun, some
from tollhouse.cli.options import Account, PlainHttp, Programme, VaultWrites, switches, yes_to
from tollhouse.cli.output import Listing, Record, field
from tollhouse.cli.policies import PolicyFile, with_policy
from tollhouse.cli.references import workspace_id
from tollhouse.cli.values import segment, slug_of

app = noun("workspaces", "Workspaces: the scopes inside an account that keys belong to.")

Reference = Annotated[
    str, typer.Argument(metavar="WORKSPACE", help="Id, slug or name of the workspace.")
]
Description = Annotated[
    str | None, typer.Option(metavar="TEXT", help='What it is for; "" removes it.')
]


@control_command(
    app,
    "create",
    'tollhouse workspaces create "Data team"',
    "tollhouse workspaces create Research --slug lab --account acme",
)
async def create(
    server: Server,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    slug: Annotated[
        str | None,
        typer.Option(metavar="SLUG", help="Its name in URLs; derived from NAME unless given."),
    ] = None,
    description: Description = None,
    account: Account = None,
) -> Record:
    """Make a workspace."""
    body = changes(name=name, slug=slug or slug_of(name), description=description or None)
    made = await server.send("POST", "/workspaces", {**body, **changes(account_id=account)})
    return Record(made["data"])


@control_command(app, "list", "tollhouse workspaces list")
async def list_(server: Server, account: Account = None) -> Listing:
    """List the workspaces of an account, oldest first."""
    columns = [
        field("id"),
        field("slug"),
        field("name"),
        field("description"),
        field("created_at", "created"),
    ]
    return Listing(await server.all_of("/workspaces", account_id=account), columns)


@control_command(app, "show", "tollhouse workspaces show default")
async def show(server: Server, workspace: Reference, account: Account = None) -> Record:
    """Show a workspace."""
    path = f"/workspaces/{segment(await workspace_id(server, workspace, account))}"
    found = await server.get(path, account_id=account)
    return Record(await with_policy(server, path, found["data"], None, account_id=account))


@control_command(
    app,
    "set",
    'tollhouse workspaces set lab --name "Research lab"',
    "tollhouse workspaces set lab --policy policy.yaml",
    "tollhouse workspaces set lab --programme off",
    "tollhouse workspaces set default --default-model openai/gpt-5",
)
async def set_(
    server: Server,
    workspace: Reference,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its new name.")] = None,
    slug: Annotated[str | None, typer.Option(metavar="SLUG", help="Its new name in URLs.")] = None,
    description: Description = None,
    policy: PolicyFile = None,
    programme: Programme = None,
    vault_writes: VaultWrites = None,
    plain_http: PlainHttp = None,
    default_model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help='The model of interns that have none of their own; "" for none.'
        ),
    ] = None,
    account: Account = None,
) -> Record:
    """Change the given fields of a workspace."""
    body = changes(name=name, slug=slug) | switches(programme, vault_writes, plain_http)
    if description is not None:
        body["description"] = description or None
    if default_model is not None:
        body["default_text_model"] = default_model or None
    some({**body, **changes(policy=policy)})
    path = f"/workspaces/{segment(await workspace_id(server, workspace, account))}"
    if body:
        found = await server.send("PATCH", path, body, query={"account_id": account})
    else:
        found = await server.get(path, account_id=account)
    path = f"/workspaces/{segment(found['data']['id'])}"
    return Record(await with_policy(server, path, found["data"], policy, account_id=account))


@control_command(
    app,
    "delete",
    "tollhouse workspaces delete lab",
    "tollhouse workspaces delete default --confirm-default",
)
async def delete(
    server: Server,
    workspace: Reference,
    confirm_default: Annotated[
        bool, typer.Option("--confirm-default", help="Needed to delete the default workspace.")
    ] = False,
    account: Account = None,
    yes: Annotated[bool, yes_to("Delete the workspace {workspace}?")] = False,
) -> Record:
    """Delete a workspace; its keys have to be deleted before."""
    del yes  # it is asked before the server is
    query = {"confirm_default_workspace_deletion": confirm_default, "account_id": account}
    path = f"/workspaces/{segment(await workspace_id(server, workspace, account))}"
    return Record(await server.send("DELETE", path, query=query))
