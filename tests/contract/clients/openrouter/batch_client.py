"""A client of `openrouter` for batches: asks, waits for ends, and keeps the wire.

Environment: BASE_URL.
"""

import time
from functools import partial

import caller
from openrouter import errors
from openrouter.components import BatchObject

ENDED = {"completed", "failed", "expired", "cancelled"}
LONGEST_SECONDS = 60.0

raw: list = []
"""Every JSON that came, behind its status."""


def keep(response) -> None:
    response.read()
    raw.append([response.status_code, response.json()])


client = partial(caller.client, keep=keep)


def requests_of(*bodies: dict) -> list[dict]:
    return [{"custom_id": f"item-{at}", "body": body} for at, body in enumerate(bodies)]


def ended(asker, batch_id: str, *, until=ENDED) -> BatchObject:
    """Return a batch once it has one of some statuses."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while (found := asker.batch.get_batches(id=batch_id)).status not in until:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def refused(ask) -> dict:
    """Return what the library makes of a refusal."""
    try:
        ask()
    except errors.OpenRouterError as error:
        told = error.data.error
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "code": told.code,
            "message": told.message,
        }
    return {"class": None}
