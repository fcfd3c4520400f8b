// npm's `ollama` in a loop of one tool call. Arguments: address, model, tools as JSON. Prints what it saw as JSON.
import { Ollama } from "ollama";

const [host, model, tools] = process.argv.slice(2);
const client = new Ollama({ host });
const messages = [{ role: "user", content: "hi" }];
const asked = { model, tools: JSON.parse(tools) };
const whole = await client.chat({ ...asked, messages });
messages.push(whole.message, { role: "tool", tool_name: "weather", content: "9" });
await client.chat({ ...asked, messages });
const calls = [];
for await (const part of await client.chat({ ...asked, messages, stream: true })) calls.push(...(part.message.tool_calls ?? []));
console.log(JSON.stringify({ whole: whole.message.tool_calls, streamed: calls }));
