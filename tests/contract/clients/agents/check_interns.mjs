// Takes an intern through its life with `@openrouter/sdk` 1.3.19; prints what check_interns.py of `openrouter` does,
// but for the daemon and `invoke`, which this library does not have, and with a chat in their place.
// Environment: as in caller.mjs, and API_KEY, WORKSPACE, INTERN_KEY (the own key of another intern).
import { setTimeout } from "node:timers/promises";
import { client, dump, refused } from "./caller.mjs";

const SETTLED = ["running", "failed", "stopped", "destroy_failed"];
const { interns } = client(process.env.API_KEY);
const own = client(process.env.INTERN_KEY).interns;
const create = (fields, idempotencyKey) => interns.createIntern({ createInternRequest: fields, idempotencyKey });

async function settled(asked) {
  for (;;) {
    const intern = dump(await interns.getIntern(asked));
    if (SETTLED.includes(intern.status)) return intern;
    await setTimeout(50);
  }
}

async function gone(asked) {
  for (;;) {
    const told = await refused(interns.getIntern(asked));
    if (told.class !== null) return told;
    await setTimeout(50);
  }
}

const chat = (internId, content) =>
  interns.chat({ internId, internChatCompletionRequest: { messages: [{ role: "user", content }], stream: true } });

async function talked(internId) {
  const said = { text: "", ends: [] };
  for await (const { choices, sessionId } of (await chat(internId, "say: Hi.")).result) {
    said.text += choices[0]?.delta.content ?? "";
    if (choices[0]?.finishReason) said.ends.push(choices[0].finishReason);
    said.session = Boolean(sessionId);
  }
  return said;
}

async function life() {
  const made = await create({ name: "ada", description: "counts" }, "the-first");
  const again = await create({ name: "ada", description: "counts" }, "the-first");
  const asked = { internId: made.id };
  const page = await interns.listInterns({ limit: 50, status: ["queued", "running"] });
  const update = { ...asked, updateInternRequest: { instructions: "be kind" } };
  return {
    made: dump(made),
    again: dump(again),
    listed: dump(page),
    updated: dump(await interns.updateIntern(update)),
    "no chat": await refused(chat(made.id, "say: Hi.")),
    "not suspended": await refused(interns.suspendIntern(asked)),
    provisioned: dump(await interns.provisionIntern(asked)),
    running: await settled(asked),
    busy: await refused(interns.provisionIntern(asked)),
    talked: await talked(made.id),
    suspended: dump(await interns.suspendIntern(asked)),
    stopped: await settled(asked),
    resumed: dump(await interns.provisionIntern(asked)),
    "runs again": await settled(asked),
    deleting: dump(await interns.deleteIntern({ ...asked, deleteInternRequest: {} })),
    gone: await gone(asked),
  };
}

async function refusals() {
  const made = await create({ name: "bob" });
  return {
    "bad name": await refused(create({ name: "Bob" })),
    "taken name": await refused(create({ name: "bob", description: "another" })),
    unknown: await refused(interns.getIntern({ internId: "nobody" })),
    "bad limit": await refused(interns.listInterns({ limit: 501 })),
    "own list": await refused(own.listInterns()),
    "own other": await refused(own.getIntern({ internId: made.id })),
    "other workspace": await refused(create({ name: "eve", workspaceId: "99999999-0000-4000-8000-000000000009" })),
  };
}

console.log(JSON.stringify({ life: await life(), refusals: await refusals() }));
