// Drawing: a canvas in CSS pixels, and the theme's colours.
const probe = document.createElement("span");
probe.hidden = true;
const known = new Map();

export function colour(name) {
  if (!known.has(name)) {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(--${name})`;
    known.set(name, getComputedStyle(probe).color);
  }
  return known.get(name);
}

/** Called when the theme has changed: colours are read anew. */
export function forgetColours() {
  known.clear();
}

/** A cleared 2D context with its size in CSS pixels; null while the canvas is not shown. */
export function surface(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return null;
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  return { context, width, height };
}

export function words(context, text, x, y, align = "left", name = "soft") {
  context.fillStyle = colour(name);
  context.textAlign = align;
  context.fillText(text, x, y);
}

export function line(context, points, name, wide = 1, dash = []) {
  context.strokeStyle = colour(name);
  context.lineWidth = wide;
  context.setLineDash(dash);
  context.beginPath();
  points.forEach(([x, y], place) => (place ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
  context.setLineDash([]);
}

export function dot(context, x, y, radius, name, alpha = 1) {
  context.globalAlpha = alpha;
  context.fillStyle = colour(name);
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
  context.globalAlpha = 1;
}

/** Maps values to pixels by their logarithm. */
export function logAxis(low, high, from, to) {
  const [a, b] = [Math.log10(low), Math.log10(high)];
  const place = (value) => from + (to - from) * Math.min(1, Math.max(0, (Math.log10(value) - a) / (b - a)));
  place.decades = [];
  for (let at = Math.ceil(a); at <= Math.floor(b); at += 1) place.decades.push(10 ** at);
  return place;
}
