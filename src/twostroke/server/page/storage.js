// Values that the browser keeps, for ever or for this tab. Where storage is forbidden, full or damaged, the page works without it.
const area = (tab) => (tab ? sessionStorage : localStorage);

export function read(key, tab = false) {
  try {
    return area(tab).getItem(key);
  } catch {
    return null;
  }
}

/** Stores a value. Returns false where it could not be kept. */
export function write(key, text, tab = false) {
  try {
    area(tab).setItem(key, text);
  } catch {
    return false;
  }
  return true;
}

export function remove(key) {
  try {
    localStorage.removeItem(key);
  } catch {
    /** it was never kept */
  }
}

/** The value; null where it is missing or is no JSON. */
export function readJson(key) {
  try {
    return JSON.parse(read(key));
  } catch {
    return null;
  }
}

export function keys(prefix) {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(prefix));
  } catch {
    return [];
  }
}
