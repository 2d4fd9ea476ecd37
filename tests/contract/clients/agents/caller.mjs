// Callers of `@openrouter/sdk`, in one of its releases, and what its classes hold, with the wire's names.
// Environment: BASE_URL, LIBRARY (the name that the release is installed under), PACKAGES (where).
import { createRequire } from "node:module";

const { BASE_URL, LIBRARY, PACKAGES } = process.env;
const { OpenRouter } = await import(createRequire(`${PACKAGES}/`).resolve(LIBRARY));

// Without it a 502 would be tried again for an hour.
const retryConfig = { strategy: "none" };
export const client = (apiKey) => new OpenRouter({ apiKey, serverURL: BASE_URL, retryConfig });

const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

export function dump(model) {
  if (Array.isArray(model)) return model.map(dump);
  if (model === null || typeof model !== "object") return model;
  return Object.fromEntries(Object.entries(model).map(([name, value]) => [snake(name), dump(value)]));
}

export async function refused(asked) {
  try {
    await asked;
  } catch (error) {
    if (!error.statusCode) throw error; // The library could not read a reply, or not send a request.
    return { class: error.constructor.name, status: error.statusCode, told: JSON.parse(error.body).error };
  }
  return { class: null };
}
