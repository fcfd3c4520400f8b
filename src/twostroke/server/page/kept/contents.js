// Texts that are too long for a chat's own entry, such as the contents of attached files, by id in IndexedDB. Where the browser forbids it,
// or has lost them, this page still has the texts that it was given itself.
const DATABASE = "twostroke",
  TABLE = "contents";

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

export class Contents {
  constructor() {
    this.held = new Map();
  }

  /** The table for one transaction; null where there is none. */
  async table(mode) {
    this.opened ??= this.opening();
    const database = await this.opened.catch(() => null);
    if (!database) return null;
    try {
      return database.transaction(TABLE, mode).objectStore(TABLE);
    } catch {
      this.opened = null; // the browser has closed it
      return null;
    }
  }

  async opening() {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE);
    const database = await done(request);
    database.onversionchange = () => database.close();
    database.onclose = () => {
      this.opened = null;
    };
    return database;
  }

  /** Stores a value. Returns false where only this page has it from now on. */
  async put(id, value) {
    this.held.set(id, value);
    const table = await this.table("readwrite");
    return Boolean(table) && done(table.put(value, id)).then(() => true, () => false);
  }

  /** The value; undefined where nothing has it. */
  async get(id) {
    if (this.held.has(id)) return this.held.get(id);
    const found = await (await this.table("readonly"))?.get(id);
    const value = found && (await done(found).catch(() => undefined));
    if (value !== undefined) this.held.set(id, value);
    return value;
  }

  /** id -> value, for those that exist. */
  async all(ids) {
    const found = await Promise.all(ids.map(async (id) => [id, await this.get(id)]));
    return new Map(found.filter(([, value]) => value !== undefined));
  }

  /** Removes everything except these ids. */
  async sweep(used) {
    const table = await this.table("readwrite");
    if (!table) return;
    const ids = await done(table.getAllKeys()).catch(() => []);
    for (const id of ids) if (!used.has(id)) table.delete(id);
  }
}

/** The ids of everything that these chats name. */
export function idsOf(chats) {
  const turns = chats.flatMap((chat) => chat.turns);
  return new Set(turns.flatMap(({ files, answer }) => [...files.map(({ id }) => id), answer.key]));
}
