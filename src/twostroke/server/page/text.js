// Numbers as words, and elements without markup in strings.

/** An element with attributes and children (elements or text). */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Adds these children to the element, one by one. A call with a hundred thousand arguments would overflow the stack. */
export function filled(element, children) {
  for (const child of children) element.append(child);
  return element;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.0995) return `${(seconds * 1e3).toFixed(1)} ms`;
  if (seconds < 0.9995) return `${(seconds * 1e3).toFixed(0)} ms`;
  return seconds < 60 ? `${seconds.toFixed(2)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export function count(value) {
  return Math.round(value).toLocaleString("en");
}

export function rate(tokens, seconds) {
  if (!(seconds > 0)) return "–";
  const value = tokens / seconds;
  return `${value < 10 ? value.toFixed(1) : count(value)} tok/s`;
}

export function scaled(value, unit) {
  for (const [factor, sign] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (value >= factor) return `${(value / factor).toPrecision(3)} ${sign}${unit}`;
  }
  return `${value.toPrecision(3)} ${unit}`;
}

export function shortName(name) {
  // The first prompt's first completion needs no number.
  return name
    .replace(/-0\/0$/, "")
    .replace(/^(chatcmpl-|cmpl-|resp_|msg_)/, "")
    .replace(/^([0-9a-f]{8})[0-9a-f]{24}/, "$1");
}
