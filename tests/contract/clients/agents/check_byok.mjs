// Leads an own key of a provider through its life with `@openrouter/sdk`; prints what check_byok.py of `openrouter` does.
// Environment: as in caller.mjs, and API_KEY, KEY_HASH, MANAGEMENT_KEY, MODEL, PROVIDER.
import { client, dump, refused } from "./caller.mjs";

const { API_KEY, KEY_HASH, MANAGEMENT_KEY, MODEL: model, PROVIDER: provider } = process.env;
const TEXT = "own-key-of-the-published-client";
const caller = client(API_KEY);
const manager = client(MANAGEMENT_KEY);
const keys = manager.byok;

const create = (asker, fields) => asker.create({ createBYOKKeyRequest: { provider, key: TEXT, ...fields } });
const update = async (id, fields) => dump((await keys.update({ id, updateBYOKKeyRequest: fields })).data);

async function cost() {
  const messages = [{ role: "user", content: "one two three" }];
  const reply = await caller.chat.send({ chatRequest: { model, messages } });
  const { data } = await caller.generations.getGeneration({ id: reply.id });
  return { cost: reply.usage.cost, is_byok: reply.usage.isByok, booked: data.isByok };
}

async function refusal(asked) {
  const { class: name, status } = await refused(asked);
  return { class: name, status };
}

const { data: made } = await create(keys, {
  name: "mine",
  isRequired: true,
  allowedModels: [model],
  allowedApiKeyHashes: [KEY_HASH],
  declaredRegion: "europe",
  declaredZdr: true,
});
const { id } = made;
const found = { made: dump(made), got: dump((await keys.get({ id })).data) };
found.used = await cost();
found.after = dump((await caller.apiKeys.getCurrentKeyMetadata()).data);
found.changed = await update(id, { key: `${TEXT}-2`, name: null, isRequired: false, allowedModels: null });
const page = await keys.list({ provider, limit: 100 });
found.listed = dump(page.result.data.filter((each) => each.id === id));
found.disabled = await update(id, { disabled: true });
found.unused = await cost();
found.activity = dump((await manager.analytics.getUserActivity({ apiKeyHash: KEY_HASH })).data);
found.deleted = dump(await keys.delete({ id }));
found.refused = {
  gone: await refusal(keys.get({ id })),
  contradiction: await refusal(create(keys, { isFallback: true, isByokOnly: true })),
  "api key": await refusal(create(caller.byok)),
};
console.log(JSON.stringify(found));
