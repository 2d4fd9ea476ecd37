// The AI SDK's tool loop with one of its providers; prints the text, or the error that a user sees.
// It is evaluated where the packages are, so that their names are found.
import { readFile, writeFile } from "node:fs/promises";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const [variant, id, prompt, options] = process.argv.slice(1);
const { BASE_URL: baseURL, KEY: apiKey, NOTE } = process.env;
const model = {
  "openai responses": () => createOpenAI({ baseURL, apiKey }).responses(id),
  "openai chat": () => createOpenAI({ baseURL, apiKey }).chat(id),
  anthropic: () => createAnthropic({ baseURL, apiKey })(id),
  compatible: () => createOpenAICompatible({ name: "gateway", baseURL, apiKey })(id),
}[variant.replace(" streamed", "")]();
const text = { type: "string" };
const tools = {
  write_note: tool({
    inputSchema: jsonSchema({ type: "object", properties: { text }, required: ["text"] }),
    execute: async ({ text }) => (await writeFile(NOTE, text), "written"),
  }),
  read_note: tool({
    inputSchema: jsonSchema({ type: "object", properties: {} }),
    execute: async () => await readFile(NOTE, "utf8"),
  }),
};

try {
  const asked = {
    model, tools, prompt, stopWhen: stepCountIs(5), maxRetries: 0, providerOptions: JSON.parse(options),
    onError: ({ error }) => { throw error; },
  };
  const done = variant.endsWith("streamed") ? streamText(asked) : await generateText(asked);
  console.log(await done.text);
} catch ({ statusCode, isRetryable, message }) {
  console.log(JSON.stringify({ statusCode, isRetryable, message }));
  process.exitCode = 1;
}
