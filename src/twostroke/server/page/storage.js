// What the browser keeps, for ever or for this tab. Where that is forbidden, full or damaged, the page works without.
const area = (tab) => (tab ? sessionStorage : localStorage);

export function read(key, tab = false) {
  try {
    return area(tab).getItem(key);
  } catch {
    return null;
  }
}

/** False where it could not be kept. */
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
    /* it was never kept */
  }
}

/** null where it is missing or no JSON. */
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
