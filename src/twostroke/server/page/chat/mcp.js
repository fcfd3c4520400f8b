// Tools of MCP servers, which this server calls for the page. Each call is made when the reader agrees.
import { getJson, postJson } from "../api.js";
import { make } from "../text.js";

const VERSION = "2025-06-18";
const KEPT = "mcp";
const OVER = 404;

/** One server of tools. Its session begins with the first message. */
class ToolServer {
  constructor(name) {
    Object.assign(this, { name, session: "", version: "", tools: [], last: 0, begun: null });
  }

  async send(method, params, asks = true) {
    const message = { jsonrpc: "2.0", method, ...(params ? { params } : {}), ...(asks ? { id: ++this.last } : {}) };
    const body = { message, session: this.session, version: this.version };
    const came = await (await postJson(`/v1/mcp/${encodeURIComponent(this.name)}`, body)).json();
    this.session = came.session;
    if (came.message?.error) throw new Error(`${this.name}: ${came.message.error.message}`);
    return came.message?.result;
  }

  /** Its tools. They are asked for once, and again where that failed. */
  list() {
    this.begun ??= this.begin().catch((error) => {
      this.begun = null;
      throw error;
    });
    return this.begun;
  }

  async begin() {
    this.session = this.version = "";
    const client = { name: "twostroke", version: "1" };
    const told = await this.send("initialize", { protocolVersion: VERSION, capabilities: {}, clientInfo: client });
    this.version = told.protocolVersion;
    await this.send("notifications/initialized", null, false);
    this.tools = [];
    for (let cursor; ; ) {
      const { tools, nextCursor } = await this.send("tools/list", cursor ? { cursor } : {});
      this.tools.push(...tools);
      cursor = nextCursor;
      if (!cursor) return this.tools;
    }
  }

  /** The text of a tool's result. If the session has ended in the meantime, a new one begins. */
  async call(name, given) {
    const params = { name, arguments: given };
    const result = await this.send("tools/call", params).catch(async (error) => {
      if (error.status !== OVER) throw error;
      await this.begin();
      return this.send("tools/call", params);
    });
    const parts = (result.content ?? []).map(({ type, text }) => (type === "text" ? text : `[${type}]`));
    const text = parts.join("\n") || JSON.stringify(result.structuredContent ?? "");
    return result.isError ? `Error: ${text}` : text;
  }
}

export class Mcp {
  /** settings: {get(name), set(name, value)} stores which servers are used. */
  constructor(settings) {
    Object.assign(this, { settings, servers: [] });
    this.element = make("fieldset", { class: "setting", id: "setting-mcp", hidden: "" });
    this.note = make("p", { class: "figures", role: "status" });
  }

  async find() {
    const { servers } = await getJson("/v1/mcp").catch(() => ({ servers: [] }));
    this.servers = servers.map((name) => new ToolServer(name));
    this.element.hidden = !servers.length;
    await this.refresh();
  }

  /** Called when other servers may be used. */
  async refresh() {
    this.draw();
    for (const server of this.used) await this.learn(server);
  }

  get used() {
    const names = this.settings.get(KEPT) ?? [];
    return this.servers.filter(({ name }) => names.includes(name));
  }

  draw() {
    const rows = this.servers.map((server) => {
      const box = make("input", { type: "checkbox", value: server.name });
      box.checked = this.used.includes(server);
      box.addEventListener("change", () => this.use(server, box.checked));
      return make("label", { class: "check" }, box, server.name);
    });
    const help = make("p", { class: "figures" }, "The model may ask for their tools. Each call waits until you run it.");
    this.element.replaceChildren(make("legend", {}, "Tool servers"), ...rows, help, this.note);
  }

  async use(server, is) {
    const names = this.used.map(({ name }) => name).filter((name) => name !== server.name);
    this.settings.set(KEPT, is ? [...names, server.name] : names);
    if (is) await this.learn(server);
    else this.note.textContent = "";
  }

  async learn(server) {
    try {
      const tools = await server.list();
      this.note.textContent = `${server.name}: ${tools.map(({ name }) => name).join(", ") || "no tools"}`;
    } catch (error) {
      this.note.textContent = error.message;
    }
  }

  /** The tools as the API takes them. Where two servers have the same name, the first one keeps it. */
  get tools() {
    const found = new Map();
    for (const { tools } of this.used) {
      for (const { name, description, inputSchema } of tools) {
        const parameters = inputSchema ?? { type: "object", properties: {} };
        if (!found.has(name)) found.set(name, { type: "function", function: { name, description, parameters } });
      }
    }
    return [...found.values()];
  }

  /** A function that runs a call of this tool: (arguments as text) -> its result. null where no server has the tool. */
  runner(tool) {
    const server = this.used.find(({ tools }) => tools.some(({ name }) => name === tool));
    if (!server) return null;
    return { name: server.name, run: (given) => server.call(tool, given.trim() ? JSON.parse(given) : {}) };
  }
}
