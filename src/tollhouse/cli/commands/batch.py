"""`tollhouse batch`: many requests at once, run in the background."""

import sys
from enum import StrEnum
from typing import Annotated, Any

from typer import Argument, Option

from tollhouse.cli.batches.status import (
    EXIT_UNFINISHED,
    FINAL_STATUSES,
    ResultFormat,
    batch_columns,
    batch_report,
    get_batch,
    submit_batch,
    watch_batch,
    write_results,
)
from tollhouse.cli.client import Server
from tollhouse.cli.control import CommandGroup
from tollhouse.cli.options import Force, Output
from tollhouse.cli.output import AlreadyWritten, Record, Report, Table, open_output
from tollhouse.cli.values import header_text, path_segment

app = CommandGroup(
    "batch",
    "Batches: many requests at once, run in the background. They belong to the "
    "workspace of the API key in TOLLHOUSE_API_KEY.",
    by_key=True,
)

PAGE = 100


class BatchStatusOption(StrEnum):
    """The statuses that a list tells apart."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


Id = Annotated[str, Argument(metavar="ID", help="The batch's id.")]
Watch = Annotated[
    bool,
    Option(
        "--watch",
        help="Wait for its end, and end with 0 where every request was answered, 3 where some "
        "failed, 4 where the batch failed, expired or was cancelled. Ctrl-C leaves it running.",
    ),
]


@app.control(
    "submit",
    "tollhouse batch submit requests.jsonl --model acme/large",
    "tollhouse batch submit requests.jsonl --watch",
    "tollhouse batch submit texts.jsonl --model acme/embed --endpoint embeddings --json",
    "tollhouse batch submit - --model acme/large --provider acme --no-fallbacks",
)
async def submit(
    server: Server,
    file: Annotated[
        str,
        Argument(
            metavar="FILE",
            help='JSON Lines, each line {"custom_id": ..., "body": {...}} or one of OpenAI\'s with '
            "method and url; or a whole batch as one JSON object. - reads standard input.",
        ),
    ],
    model: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="The model of all requests; default: the one that every body names.",
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        Option(
            metavar="ENDPOINT",
            help="The format of the bodies: chat/completions, responses, messages or embeddings. "
            "What the lines' url says unless given, else chat/completions.",
        ),
    ] = None,
    provider: Annotated[
        list[str] | None, Option(metavar="SLUG", help="Ask this provider only; may be repeated.")
    ] = None,
    no_fallbacks: Annotated[
        bool, Option("--no-fallbacks", help="Ask no other provider after the first.")
    ] = False,
    idempotency_key: Annotated[
        str | None,
        Option(
            metavar="KEY", help="Repeating the command with the same key makes no second batch."
        ),
    ] = None,
    watch: Watch = False,
) -> Report:
    """Submit a file of requests, all for one model.

    The whole file is checked before anything is sent.
    """
    from tollhouse.cli.batches.upload import (
        BatchOptions,
        endpoint_option,
        open_requests,
        read_upload,
    )

    options = BatchOptions(
        model=model,
        endpoint=None if endpoint is None else endpoint_option(endpoint),
        providers=tuple(provider or ()),
        fallbacks=not no_fallbacks,
    )
    if idempotency_key is not None:
        header_text(idempotency_key, "--idempotency-key")
    with open_requests(file) as source:
        batch = await submit_batch(server, read_upload(source, file, options), idempotency_key)
    if not watch:
        return batch_report(batch)
    print(f"Submitted as {batch['id']}.", file=sys.stderr, flush=True)
    return await watch_batch(server, batch["id"])


@app.control(
    "list",
    "tollhouse batch list",
    "tollhouse batch list --status in_progress --status validating",
    "tollhouse batch list --all --created-after 2026-01-31 --json",
)
async def list_(
    server: Server,
    status: Annotated[
        list[BatchStatusOption] | None, Option(help="Only those of this status; may be repeated.")
    ] = None,
    limit: Annotated[int, Option(metavar="N", min=1, help="How many to show at most.")] = 20,
    every: Annotated[bool, Option("--all", help="Show all of them.")] = False,
    created_after: Annotated[
        str | None,
        Option(
            metavar="WHEN",
            help="Only those made later: 2026-01-31, or 2026-01-31T12:00:00Z, in UTC.",
        ),
    ] = None,
    created_before: Annotated[
        str | None, Option(metavar="WHEN", help="Only those made earlier.")
    ] = None,
) -> Table:
    """List the batches of the key's workspace, newest first."""
    found: list[dict[str, Any]] = []
    more, after = True, None
    while more and (every or len(found) < limit):
        page = await server.get(
            "/batches",
            limit=PAGE if every else min(PAGE, limit - len(found)),
            after=after,
            status=None if status is None else [each.value for each in status],
            created_after=created_after,
            created_before=created_before,
        )
        found += page["data"]
        more, after = page["has_more"] and bool(page["data"]), page["last_id"]
    return Table(found, batch_columns(), note="There are more: --all shows them." if more else None)


@app.control(
    "show",
    "tollhouse batch show batch_...",
    "tollhouse batch show batch_... --watch && tollhouse batch results batch_... -o out.jsonl",
)
async def show(server: Server, batch: Id, watch: Watch = False) -> Report:
    """Show everything about a batch except its results."""
    if watch:
        return await watch_batch(server, batch)
    return batch_report(await get_batch(server, batch))


@app.control(
    "results",
    "tollhouse batch results batch_... -o results.jsonl",
    "tollhouse batch results batch_... | jq -r .response.body.choices[0].message.content",
    "tollhouse batch results batch_... --format openai -o results.jsonl --force",
)
async def results(
    server: Server,
    batch: Id,
    output: Output = None,
    form: Annotated[
        ResultFormat,
        Option(
            "--format",
            help="How lines look: as the API has them, or as in OpenAI's output files. They differ "
            "where a request failed: OpenAI's `error` has `code` and `message` only.",
        ),
    ] = "tollhouse",
    force: Force = False,
) -> AlreadyWritten:
    """Write the results of a batch as JSON Lines, one for each request.

    Of a batch that runs these are the results so far, and the exit code is 5.
    They come in no order: custom_id says whose a result is.
    """
    with open_output(output, force=force) as sink:
        count, failed, found = await write_results(server, batch, form, sink)
    note = f"{count:,} results, {failed:,} of them failed."
    if found["status"] in FINAL_STATUSES:
        return AlreadyWritten(note)
    return AlreadyWritten(
        f"{note} {batch} is {found['status']}: these are not all.", exit_code=EXIT_UNFINISHED
    )


@app.control("cancel", "tollhouse batch cancel batch_...")
async def cancel(server: Server, batch: Id) -> Report:
    """Cancel a batch: no further request begins. Finished ones are kept and charged."""
    return batch_report(await server.send("POST", f"/batches/{path_segment(batch)}/cancel"))


@app.control(
    "delete",
    "tollhouse batch delete batch_...",
    "tollhouse batch delete batch_... --yes",
    confirm="Delete {batch} with its requests and results?",
)
async def delete(server: Server, batch: Id) -> Report:
    """Delete a batch that has ended, with its requests and results; what it cost stays booked."""
    found = await server.send("DELETE", f"/batches/{path_segment(batch)}")
    upstream: dict[str, str] = found["deletion"].get("upstream") or {}
    shown = {"id": found["id"], "deleted": True, "at the provider": upstream.get("status")}
    return Report(found, Record(shown))
