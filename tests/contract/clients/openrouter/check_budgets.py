"""Leads the budgets of a workspace through their life with `openrouter`; prints JSON.

Environment: BASE_URL, API_KEY, MANAGEMENT_KEY.
"""

import json
import os

from caller import client, dump, shown
from openrouter import errors

WHERE = {"workspace_ref": "default"}


def refused(ask) -> dict:
    try:
        ask()
    except errors.OpenRouterError as error:
        return {"class": type(error).__name__, "status": error.status_code}
    return {"class": None}


def main() -> dict:
    with client(os.environ["MANAGEMENT_KEY"]) as manager, client(os.environ["API_KEY"]) as caller:
        spaces = manager.workspaces
        found = {
            "monthly": dump(spaces.set_budget(**WHERE, interval="monthly", limit_usd=900.5)),
            "lifetime": dump(
                spaces.set_budget(
                    **WHERE, interval="lifetime", limit_usd=1000, include_byok_in_budgets=True
                )
            ),
            "got": dump(spaces.get_budget(**WHERE, interval="monthly")),
            "listed": dump(spaces.list_budgets(**WHERE)),
            "key": dump(caller.api_keys.get_current_key_metadata().data),
            "refused": {
                "none": refused(lambda: spaces.get_budget(**WHERE, interval="daily")),
                "order": refused(
                    lambda: spaces.set_budget(**WHERE, interval="daily", limit_usd=900.5)
                ),
                "api key": refused(lambda: caller.workspaces.list_budgets(**WHERE)),
                "no workspace": refused(lambda: spaces.list_budgets(workspace_ref="nowhere")),
            },
        }
        found["deleted"] = [
            shown(spaces.delete_budget(**WHERE, interval=each))
            for each in ("monthly", "lifetime", "daily")
        ]
        found["left"] = dump(spaces.list_budgets(**WHERE))
        spaces.set_budget(**WHERE, interval="daily", limit_usd=1000, include_byok_in_budgets=False)
        spaces.delete_budget(**WHERE, interval="daily")
    return found


print(json.dumps(main()))
