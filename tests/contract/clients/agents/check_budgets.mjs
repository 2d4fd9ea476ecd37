// Leads the budgets of a workspace through their life with `@openrouter/sdk`; prints what check_budgets.py of `openrouter` does.
// Environment: as in caller.mjs, and API_KEY, MANAGEMENT_KEY.
import { client, dump, refused } from "./caller.mjs";

const { API_KEY, MANAGEMENT_KEY } = process.env;
const caller = client(API_KEY);
const { workspaces } = client(MANAGEMENT_KEY);
const workspaceRef = "default";

const set = (interval, limitUsd, more) =>
  workspaces.setBudget({ workspaceRef, interval, upsertWorkspaceBudgetRequest: { limitUsd, ...more } });
const get = (interval) => workspaces.getBudget({ workspaceRef, interval });
const list = () => workspaces.listBudgets({ workspaceRef });

async function refusal(asked) {
  const { class: name, status } = await refused(asked);
  return { class: name, status };
}

const found = {
  monthly: dump(await set("monthly", 900.5)),
  lifetime: dump(await set("lifetime", 1000, { includeByokInBudgets: true })),
  got: dump(await get("monthly")),
  listed: dump(await list()),
  key: dump((await caller.apiKeys.getCurrentKeyMetadata()).data),
  refused: {
    none: await refusal(get("daily")),
    order: await refusal(set("daily", 900.5)),
    "api key": await refusal(caller.workspaces.listBudgets({ workspaceRef })),
    "no workspace": await refusal(workspaces.listBudgets({ workspaceRef: "nowhere" })),
  },
};
found.deleted = [];
for (const interval of ["monthly", "lifetime", "daily"]) {
  found.deleted.push(dump(await workspaces.deleteBudget({ workspaceRef, interval })));
}
found.left = dump(await list());
await set("daily", 1000, { includeByokInBudgets: false });
await workspaces.deleteBudget({ workspaceRef, interval: "daily" });
console.log(JSON.stringify(found));
