// npm's `ollama` calls each of its methods. Arguments: address, model. Prints what it saw as JSON; of a refused call its
// status and words.
import { Ollama } from "ollama";
import { Ollama as InBrowser } from "ollama/browser";

const [host, model] = process.argv.slice(2);
const client = new Ollama({ host });
const messages = [{ role: "user", content: "hi" }];
const refused = (error) => ({ status: error.status_code, error: error.error });
const all = async (stream) => {
  const parts = [];
  for await (const part of await stream) parts.push(part);
  return parts;
};

const seen = {};
seen.version = await client.version();
seen.list = await client.list();
seen.show = await client.show({ model });
seen.chat = await client.chat({ model, messages });
seen.chatStream = await all(client.chat({ model, messages, stream: true, keep_alive: "5m", options: { num_ctx: 512 } }));
seen.generate = await client.generate({ model, prompt: "hi", system: "be kind" });
seen.generateStream = await all(client.generate({ model, prompt: "hi", stream: true, context: seen.generate.context }));
seen.browser = await all(new InBrowser({ host }).chat({ model, messages, stream: true }));
seen.json = await client.chat({ model, messages, format: "json" });
seen.load = await client.generate({ model, prompt: "" });
seen.ps = await client.ps();
seen.pull = await client.pull({ model });
seen.pullStream = await all(client.pull({ model, stream: true }));

const aborted = await client.chat({ model, messages, stream: true });
seen.aborted = "";
try {
  for await (const part of aborted) {
    seen.aborted += part.message.content;
    client.abort();
  }
  seen.abortError = null;
} catch (error) {
  seen.abortError = error.name;
}
seen.after = await client.chat({ model, messages });

seen.refused = {
  unknown: await client.chat({ model: "nobody", messages }).catch(refused),
  embed: await client.embed({ model, input: "x" }).catch(refused),
  embeddings: await client.embeddings({ model, prompt: "x" }).catch(refused),
  option: await client.chat({ model, messages, options: { mirostat: 3 } }).catch(refused),
  stream: await all(client.chat({ model: "nobody", messages, stream: true })).catch(refused),
  create: await client.create({ model: "new", from: model }).catch(refused),
  copy: await client.copy({ source: model, destination: "b" }).catch(refused),
  delete: await client.delete({ model }).catch(refused),
  push: await client.push({ model }).catch(refused),
};
console.log(JSON.stringify(seen));
