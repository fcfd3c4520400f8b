// The Vercel AI SDK drives a loop of tool calls. Arguments: address, model, tools as JSON, results as JSON, whole or
// stream. Prints what it saw as JSON.
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

const [url, name, tools, results, way] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "twostroke", baseURL: `${url}/v1`, apiKey: "none", includeUsage: true });
const given = JSON.parse(results);
const offered = Object.fromEntries(
  Object.entries(JSON.parse(tools)).map(([key, schema]) => [
    key,
    tool({ description: key, inputSchema: jsonSchema(schema), execute: async () => given.shift() }),
  ]),
);
const asked = {
  model: provider(name),
  prompt: "When is it open?",
  tools: offered,
  stopWhen: stepCountIs(8),
  maxRetries: 0,
};
const made = way === "stream" ? streamText(asked) : await generateText(asked);
if (way === "stream") await made.consumeStream({ onError: (error) => { throw error; } });
const steps = await made.steps;
console.log(
  JSON.stringify({
    calls: steps.map((step) => step.toolCalls.map((call) => [call.toolName, call.input])).filter((each) => each.length),
    thoughts: steps.map((step) => step.reasoningText).filter(Boolean),
    answer: await made.text,
  }),
);
