// The contents of the frames so far: the latest steps, and one record for each request. Their number is bounded.
const MOST_STEPS = 60_000,
  MOST_REQUESTS = 96,
  TOLD_S = 10;

export class Store {
  constructor() {
    this.clear();
  }

  clear() {
    this.steps = [];
    this.requests = new Map();
    this.frame = null;
    this.skipped = 0;
    this.heardAt = 0;
    this.tolds = [];  // times of the last seconds, and how many tokens each replica had made at them
  }

  /** The engine's clock now, as far as the last frame shows it. */
  now() {
    return this.frame ? this.frame.now_s + (performance.now() - this.heardAt) / 1e3 : 0;
  }

  add(frame) {
    this.frame = frame;
    this.heardAt = performance.now();
    this.skipped += frame.skipped_steps;
    this.tolds.push({ at: frame.now_s, made: new Map(frame.replicas.map((each) => [each.name, each.output_tokens])) });
    while (this.tolds[0].at < frame.now_s - TOLD_S) this.tolds.shift();
    for (const run of frame.runs) this.addRun(run, frame.names);
    for (const row of frame.requests) this.addLive(row, frame.names);
    for (const ended of frame.ended) this.addEnded(ended);
    if (this.steps.length > MOST_STEPS) this.steps.splice(0, this.steps.length - MOST_STEPS);
    const done = [...this.requests.values()].filter((each) => each.ended);
    for (const each of done.slice(0, Math.max(0, this.requests.size - MOST_REQUESTS))) this.requests.delete(each.id);
  }

  addRun(run, names) {
    const most = Math.max(1, run.times.length - 1);
    const even = (pair, at) => (pair ? pair[0] + ((pair[1] - pair[0]) * at) / most : null);
    run.times.forEach(([since, whole, modelUs, samplingUs, waiting], at) => {
      const begin = run.begin_s + since / 1e6,
        end = begin + whole / 1e6;
      const model = modelUs / 1e6,
        sampling = samplingUs / 1e6;
      const prefill = model * run.prefill_share;
      const step = {
        step: run.step + at,
        begin,
        end,
        waiting,
        prefill,
        decode: model - prefill,
        sampling,
        host: Math.max(0, end - begin - model - sampling),
        busy: model + sampling,
        seconds: end - begin,
        predicted: even(run.predicted_s, at),
        flops: even(run.flops, at),
        bytes: even(run.bytes, at),
        rows: run.rows.length,
        hasPrefill: run.prefill_share > 0,
        prefillTokens: 0,
        decodeTokens: 0,
      };
      if (at === 0) for (const name of run.preempted) this.mark(names[name], "preempted", begin, begin, 0);
      for (const [name, , tokens, , decoded] of run.rows) {
        step.decodeTokens += decoded;
        if (!decoded) step.prefillTokens += tokens;
        this.mark(names[name], decoded ? "decode" : "prefill", begin, end, decoded || tokens);
      }
      this.steps.push(step);
    });
  }

  request(id) {
    if (!this.requests.has(id)) this.requests.set(id, { id, phase: "", spans: [], ended: null, prompt: null });
    return this.requests.get(id);
  }

  /** Records what a request does from begin to end. A preempted one waits until its next step. */
  mark(id, kind, begin, end, tokens) {
    const spans = this.request(id).spans;
    const last = spans.at(-1);
    if (last && last.kind === "preempted" && last.end === last.begin) last.end = begin;
    if (last && kind === "decode" && last.kind === "decode" && begin - last.end < 0.25) {
      last.end = end;
      last.tokens += tokens;
    } else spans.push({ kind, begin, end, tokens });
    if (spans.length > 200) spans.splice(0, spans.length - 200);
  }

  addLive([name, phase, arrival, first, token, prompt, computed, cached], names) {
    Object.assign(this.request(names[name]), { phase, arrival, first, token, prompt, computed, cached });
  }

  addEnded(ended) {
    const own = this.request(ended.request);
    own.ended = ended;
    own.phase = ended.reason;
    own.arrival = ended.arrival_s;
    own.first ??= ended.arrival_s + (ended.parts_s.queue_s || 0);
    own.token ??= ended.ttft_s === null ? null : ended.arrival_s + ended.ttft_s;
    own.prompt = ended.prompt_tokens;
  }

  /** The tokens that a replica has made in the last seconds. A replica that was started anew counts from its start. */
  told({ name, output_tokens: made }) {
    const before = this.tolds[0].made.get(name) ?? 0;
    return made < before ? made : made - before;
  }

  toldSeconds() {
    return this.tolds.at(-1).at - this.tolds[0].at;
  }

  /** The steps of the last `seconds` before the last step, so that an idle engine keeps its last figures. */
  recent(seconds) {
    const from = (this.steps.at(-1)?.end ?? 0) - seconds;
    return this.steps.slice(this.steps.findLastIndex((step) => step.end < from) + 1);
  }

  /** The request that ended last, or null. */
  lastEnded() {
    let last = null;
    for (const { ended } of this.requests.values()) if (ended && !(last?.finished_s > ended.finished_s)) last = ended;
    return last;
  }
}
