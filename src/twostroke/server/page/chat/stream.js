// One answer of the server as it comes, and the figures that it leaves.
import { heardCalls } from "./calls.js";
import { events, getJson, postJson } from "../api.js";
import { count, duration, rate } from "../text.js";

/** Fills `answer` and calls heard(kind, data): "progress" with how far the prompt is; "begun", "thought" and "text" with the seconds so
 * far; "tokens" with their log probabilities. Returns {reason, ttft, usage}. */
export async function streamed(body, signal, answer, heard) {
  const begun = performance.now(),
    since = () => (performance.now() - begun) / 1e3;
  const asked = { ...body, stream: true, stream_options: { include_usage: true }, return_progress: true };
  const response = await postJson("/v1/chat/completions", asked, signal);
  const end = { reason: null, ttft: null, usage: null };
  for await (const chunk of events(response)) {
    if (chunk.error) throw new Error(chunk.error.message);
    answer.id = chunk.id ?? answer.id;
    end.usage = chunk.usage ?? end.usage;
    if (chunk.prompt_progress) heard("progress", chunk.prompt_progress);
    const [choice] = chunk.choices;
    if (!choice) continue;
    if (end.ttft === null) {
      end.ttft = since();
      heard("begun", end.ttft);
    }
    if (choice.logprobs) heard("tokens", choice.logprobs.content);
    end.reason = choice.finish_reason ?? end.reason;
    const { content, reasoning_content: thought, tool_calls: calls } = choice.delta;
    if (thought) {
      answer.reasoning += thought;
      heard("thought", since());
    }
    if (content) {
      answer.text += content;
      heard("text", since());
    }
    if (calls) {
      heardCalls(answer.calls, calls);
      heard("text", since());
    }
  }
  if (!end.reason) throw new Error("The connection ended before the answer did.");
  return end;
}

/** The engine's own account gives the speeds. The time to first token is the time that this browser measured. */
export async function figuresOf(id, { ttft, usage }) {
  const told = [`TTFT ${duration(ttft)}`];
  try {
    const [own] = (await getJson(`/v1/requests/${encodeURIComponent(id)}/explain`)).completions;
    const read = own.num_prompt_tokens - own.num_cached_tokens;
    const cached = own.num_cached_tokens ? `, ${count(own.num_cached_tokens)} cached` : "";
    told.push(`prefill ${rate(read, own.ttft_s - own.parts_s.queue_s)} (${count(read)} tokens${cached})`);
    told.push(`decode ${own.mean_itl_s ? rate(1, own.mean_itl_s) : "–"} (${count(own.num_output_tokens)} tokens)`);
  } catch {
    told.push(`${count(usage?.prompt_tokens ?? 0)} tokens read, ${count(usage?.completion_tokens ?? 0)} written`);
  }
  return told.join(" · ");
}
