// The AI SDK's tool loop with one of its providers; prints what a user sees of it as JSON.
// It is read from standard input where the packages are, so that their names are found there.
import { readFile, writeFile } from "node:fs/promises";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const { PROVIDER, STREAMS, MODEL, NOTE, OPTIONS = "{}", BASE_URL: baseURL, API_KEY: apiKey } = process.env;
const model = {
  "openai responses": () => createOpenAI({ baseURL, apiKey }).responses(MODEL),
  "openai chat": () => createOpenAI({ baseURL, apiKey }).chat(MODEL),
  anthropic: () => createAnthropic({ baseURL, apiKey })(MODEL),
  compatible: () => createOpenAICompatible({ name: "gateway", baseURL, apiKey })(MODEL),
}[PROVIDER]();
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
    model, tools, prompt: "Write a note and read it", stopWhen: stepCountIs(5),
    maxRetries: 0, providerOptions: JSON.parse(OPTIONS), onError: ({ error }) => { throw error; },
  };
  const done = STREAMS ? streamText(asked) : await generateText(asked);
  const [said, steps, finishReason] = await Promise.all([done.text, done.steps, done.finishReason]);
  console.log(JSON.stringify({
    text: said, finishReason, results: steps.flatMap((step) => step.toolResults.map((each) => each.output)),
  }));
} catch (error) {
  const { name, statusCode, isRetryable, message } = error;
  console.log(JSON.stringify({ name, statusCode, isRetryable, message }));
}
