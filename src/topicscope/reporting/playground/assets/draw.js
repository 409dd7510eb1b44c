"use strict";
// Elements, numbers, colours, and pictures on canvases, for the page and for the playground. A picture takes numbers and
// colours, and is drawn anew whenever one of them changes. PALETTE stands before this: the colours of palette.py.

const $ = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const options = (select, names) => select.replaceChildren(...names.map(([value, label]) => new Option(label, value)));

// Many events per painted frame are one act, on what the last of them gave.
function oncePerFrame(act) {
  let last = null;
  return (...given) => {
    if (last === null) requestAnimationFrame(() => { const now = last; last = null; act(...now); });
    last = given;
  };
}

function download(name, content, type) {
  const url = typeof content === "string" && content.startsWith("data:") ? content : URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

async function copyText(text, copied, otherwise) {
  try { await navigator.clipboard.writeText(text); copied(); } catch { otherwise(); }
}

// Numbers as in `reporting/rounding.py`: 3e-05 as 3·10⁻⁵.
const powers = (text) => text.replace(/(\d+(?:\.\d+)?)e([+-]?)0*(\d+)/g, (_, factor, sign, digits) =>
  (factor === "1" ? "" : factor + "·") + "10" + (sign.replace("+", "") + digits).replace(/./g, (each) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(each)]));

function brief(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  return value === 0 ? "0" : powers(size >= 1e5 || size < 1e-3 ? String(Number(value.toPrecision(digits)).toExponential()) : String(Number(value.toPrecision(digits))));
}
const whole = (value) => value.toLocaleString("en");

// The paper's symbols in plain text as MathML, as in `reporting/symbols.py`; superscripts where nothing can be typeset.
const SYMBOL = /([Wb])\^(pred|[A-Z](?![a-z]))(⊤?)|\b([pd])_([a-z])\b/g;
function math(text) {
  const node = (name, ...children) => {
    const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", name);
    made.append(...children);
    return made;
  };
  const plain = powers(String(text)), pieces = [], letters = (...all) => all.filter(Boolean).map((each) => node("mi", each));
  let at = 0;
  for (const found of plain.matchAll(SYMBOL)) {
    const [symbol, big, up, turned, low, index] = found;
    pieces.push(plain.slice(at, found.index), node("math", big ? node("msup", ...letters(big), node("mrow", ...letters(up, turned))) : node("msub", ...letters(low, index))));
    at = found.index + symbol.length;
  }
  return [...pieces, plain.slice(at)];
}

// Without a font for mathematics superscripts stand on top of their letters: the style sheet brings them down.
function lowerSuperscripts() {
  const [base, up] = [...(document.querySelector("msup")?.children || [])].map((each) => each.getBoundingClientRect());
  if (base && up.bottom < base.top + base.height / 4) document.documentElement.classList.add("high-superscripts");
}

// The colours of the reader's theme, from the style sheet; those of white paper for what is saved.
const LIGHT = { paper: "#ffffff", ink: "#1b1f24", soft: "#57606a", line: "#d0d7de", raised: "#f6f8fa" };
function theme() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(Object.keys(LIGHT).map((name) => [name, style.getPropertyValue("--" + name).trim()]));
}

function rgb(colour) {
  if (Array.isArray(colour)) return colour;
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) || 0);
}
const isDark = (colours) => rgb(colours.paper)[0] < 128;
const fade = (colour, other, share) => rgb(colour).map((value, at) => value + (rgb(other)[at] - value) * share);

// 256 colours from one end of a scale to the other; zero, in the middle of those around it, has the colour of the paper.
const SHADES = new Map();
function shades(stops) {
  const key = stops.join();
  if (!SHADES.has(key)) SHADES.set(key, Array.from({ length: 256 }, (_, at) => {
    const place = (at / 255) * (stops.length - 1), below = Math.min(Math.floor(place), stops.length - 2);
    return fade(stops[below], stops[below + 1], place - below);
  }));
  return SHADES.get(key);
}
const diverging = (colours) => PALETTE.diverging[isDark(colours) ? "dark" : "light"].map((stop) => stop || colours.paper);
// A bar of a scale of colours, with its two ends.
const scaleBar = (stops, low, high) => make("span", { class: "scale" }, low, make("i", { style: `background: linear-gradient(90deg, ${stops.join(", ")})` }), high);

// A sample of a line or of a point, for legends.
function key(colour, label, dash = [], shape = "") {
  const line = `<line x1="0" y1="6" x2="20" y2="6" stroke="${colour}" stroke-width="2.5" stroke-dasharray="${dash.join(" ")}"/>`;
  const held = make("span", { class: "key" });
  held.innerHTML = `<svg width="20" height="12" aria-hidden="true">${shape ? `<path transform="translate(10 6)" d="${SHAPES[shape]}" fill="${colour}" stroke="${colour}"/>` : line}</svg>`;
  held.append(...(typeof label === "string" ? math(label) : [label]));
  return held;
}

// A canvas as large as it is shown, in the screen's own points; null while it is not shown.
function pen(canvas, height) {
  const { width, ratio } = canvas.saved || { width: canvas.clientWidth, ratio: Math.min(window.devicePixelRatio || 1, 2) };
  if (!width) return null;
  const letters = document.documentElement.classList.contains("present") && !canvas.saved ? 18 : 12;
  const size = { width: Math.round(width * ratio), height: Math.round(height * ratio) };
  if (canvas.width !== size.width || canvas.height !== size.height) {
    Object.assign(canvas, size);
    canvas.style.height = height + "px";
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `${letters}px system-ui, sans-serif`;
  return { context, width, height, letters };
}

// A line through points, broken where one is null.
function line(context, points) {
  context.beginPath();
  let open = false;
  for (const point of points) {
    if (point && open) context.lineTo(...point);
    else if (point) context.moveTo(...point);
    open = Boolean(point);
  }
  context.stroke();
}

const SHAPES = {
  circle: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", square: "M-3.5 -3.5h7v7h-7z", cross: "M-4 -4L4 4M4 -4L-4 4",
};
function mark(context, [x, y], shape, fill, edge, size = 1) {
  context.save();
  context.translate(x, y);
  context.scale(size, size);
  const path = new Path2D(SHAPES[shape]);
  Object.assign(context, { fillStyle: fill, strokeStyle: edge, lineWidth: shape === "cross" ? 2.5 : 1.2 });
  context.setLineDash([]);
  if (shape !== "cross") context.fill(path);
  context.stroke(path);
  context.restore();
}

function write(context, text, x, y, textAlign, textBaseline) {
  Object.assign(context, { textAlign, textBaseline });
  context.fillText(text, x, y);
}

// ---- axes

function steps(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough) || power, found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

function logarithmicSteps(low, high, count) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), inside = (value) => value >= low * 0.999 && value <= high * 1.001;
  const tens = Array.from({ length: last - first + 1 }, (_, at) => 10 ** (first + at)).filter(inside);
  if (tens.length > 2) return tens.filter((_, at) => (tens.length - 1 - at) % Math.ceil(tens.length / count) === 0);
  const finer = tens.concat(...[first, last].flatMap((power) => [2, 5].map((factor) => factor * 10 ** power))).concat(10 ** first).filter(inside);
  const sorted = [...new Set(finer)].sort((a, b) => a - b);
  return sorted.length > 1 ? sorted : steps(low, high, count);
}

// Numbers from one place to another, evenly or by factors.
function axis({ low, high, log = false }, from, to, count) {
  const share = (value) => (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
  const at = (value) => from + (to - from) * Math.min(Math.max(share(value), -0.05), 1.05);
  const value = (place) => { const part = Math.min(Math.max((place - from) / (to - from), 0), 1); return log ? low * (high / low) ** part : low + part * (high - low); };
  return { at, value, ticks: (log ? logarithmicSteps : steps)(low, high, count) };
}

// The ends of an axis that has room for these numbers.
function ends(values, { log = false, from = null, to = null } = {}) {
  const known = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  let low = from ?? Math.min(...known), high = to ?? Math.max(...known);
  if (!known.length || !(high > low)) { low = known.length ? known[0] - (log ? 0.5 * known[0] : 0.5) : log ? 0.1 : 0; high = low + (log ? Math.max(low, 0.1) : 1); }
  if (log) return { low: Math.max(low, high / 1e6) / 1.3, high: high * 1.3, log };
  const room = 0.06 * (high - low);
  return { low: from === null ? low - room : low, high: to === null ? high + room : high, log };
}

// Two axes with their labels and lines; what is drawn in between is cut off at their ends until `restore`.
function frame(canvas, height, across, up, colours) {
  const drawn = pen(canvas, height);
  if (!drawn) return null;
  const { context, width, letters } = drawn, bottom = height - letters * (across.label ? 3.1 : 1.9), top = 0.7 * letters, right = width - 0.8 * letters;
  const probe = axis(up, bottom, top, Math.max(2, (bottom - top) / (3.4 * letters)));
  const left = (up.label ? 1.5 * letters : 0) + letters + Math.max(...probe.ticks.map((tick) => context.measureText(brief(tick)).width));
  const x = axis(across, left, right, Math.max(2, Math.floor((right - left) / (7 * letters)))), y = probe;
  Object.assign(context, { fillStyle: colours.soft, strokeStyle: colours.line, lineWidth: 1 });
  for (const tick of y.ticks) {
    line(context, [[left, y.at(tick)], [right, y.at(tick)]]);
    write(context, brief(tick), left - 0.5 * letters, y.at(tick), "right", "middle");
  }
  let free = -Infinity;
  for (const tick of x.ticks) {
    const text = brief(tick), half = context.measureText(text).width / 2, place = Math.min(x.at(tick), width - half);
    line(context, [[x.at(tick), top], [x.at(tick), bottom]]);
    if (place - half > free) { write(context, text, place, bottom + 0.5 * letters, "center", "top"); free = place + half + 4; }
  }
  if (across.label) write(context, across.label, (left + right) / 2, height - 0.2 * letters, "center", "bottom");
  if (up.label) {
    context.save();
    context.translate(0.2 * letters, (top + bottom) / 2);
    context.rotate(-Math.PI / 2);
    write(context, up.label, 0, 0, "center", "top");
    context.restore();
  }
  context.save();
  context.beginPath();
  context.rect(left - 1, top - 2, right - left + 2, bottom - top + 4);
  context.clip();
  return { context, x, y, left, right, top, bottom, letters, width };
}

// ---- pictures

// Curves over steps. `references` are theory's levels, `band` their intervals; `marks` are steps, `now` the one shown.
// A curve may have steps of its own.
function drawCurves(canvas, { steps: all = [], curves, references = [], marks = [], now = null, label = "", height = 220, ...scale }, colours) {
  const lists = curves.map((curve) => curve.values).concat([references.map((each) => each.at)]);
  const last = Math.max(1, ...curves.map((curve) => (curve.steps || all).at(-1) || 0));
  const drawn = frame(canvas, height, { low: 0, high: last, label: label && "step" }, { ...ends(lists.flatMap((list) => Array.from(list)), scale), label }, colours);
  if (!drawn) return null;
  const { context, x, y, left, right, top, bottom } = drawn, there = (value) => Number.isFinite(value) && !(scale.log && value <= 0);
  for (const each of references) {
    context.strokeStyle = context.fillStyle = each.colour || colours.ink;
    if (each.band) {
      context.globalAlpha = 0.2;
      context.fillRect(left, y.at(each.band[1]), right - left, Math.max(y.at(each.band[0]) - y.at(each.band[1]), 1));
      context.globalAlpha = 1;
    }
    context.setLineDash(each.dash || [6, 4]);
    context.lineWidth = 1.5;
    line(context, [[left, y.at(each.at)], [right, y.at(each.at)]]);
  }
  for (const curve of curves) {
    const points = Array.from(curve.steps || all, (step, i) => (there(curve.values[i]) ? [x.at(step), y.at(curve.values[i])] : null));
    Object.assign(context, { strokeStyle: curve.colour, fillStyle: curve.colour, lineWidth: curve.thin ? 1 : 2, globalAlpha: curve.faint ? 0.4 : 1 });
    context.setLineDash(curve.dash || []);
    line(context, points);
    context.setLineDash([]);
    // A line of few points is marked; one of a single point would not be seen.
    for (const point of points.length > 40 || curve.faint || curve.thin ? [] : points.filter(Boolean)) {
      context.beginPath();
      context.arc(...point, 2.5, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
  }
  context.lineWidth = 1.5;
  for (const each of marks.filter(({ step }) => step <= last)) {
    context.strokeStyle = context.fillStyle = each.colour || colours.ink;
    context.setLineDash(each.dash || []);
    line(context, [[x.at(each.step), top], [x.at(each.step), bottom]]);
    const beside = each.step > last / 2 ? -4 : 4;
    if (each.text) write(context, each.text, x.at(each.step) + beside, each.dash ? bottom - 4 : top + 2, beside < 0 ? "right" : "left", each.dash ? "bottom" : "top");
  }
  if (now !== null) {
    context.strokeStyle = colours.ink;
    context.setLineDash([2, 3]);
    line(context, [[x.at(now), top], [x.at(now), bottom]]);
  }
  // The dashes, the clip and the colours go with what was saved.
  context.restore();
  return drawn;
}

const spare = document.createElement("canvas");
function pixels(rows, columns, colourOf) {
  Object.assign(spare, { width: columns, height: rows });
  const context = spare.getContext("2d"), image = context.createImageData(columns, rows);
  for (let row = 0, at = 0; row < rows; row++)
    for (let column = 0; column < columns; column++, at += 4) {
      image.data.set(colourOf(row, column), at);
      image.data[at + 3] = 255;
    }
  context.putImageData(image, 0, 0);
}

// A matrix over tokens, with lines where topics end; `entry(row, column)` gives its numbers.
function drawMatrix(canvas, size, entry, scale, colours, boundaries = []) {
  const drawn = pen(canvas, canvas.saved?.width || canvas.clientWidth);
  if (!drawn) return null;
  const colour = shades(diverging(colours)), { context, width } = drawn;
  pixels(size, size, (row, column) => colour[Math.round(127.5 * (1 + Math.min(Math.max(entry(row, column) / scale, -1), 1)))]);
  context.imageSmoothingEnabled = false;
  context.drawImage(spare, 0, 0, width, width);
  Object.assign(context, { strokeStyle: colours.soft, globalAlpha: 0.5, lineWidth: 0.6 });
  for (const boundary of boundaries) {
    const at = ((boundary + 0.5) / size) * width;
    line(context, [[0, at], [width, at], null, [at, 0], [at, width]]);
  }
  context.globalAlpha = 1;
  context.strokeRect(0.5, 0.5, width - 1, width - 1);
  return { place: (x, y) => [y, x].map((each) => Math.min(Math.max(Math.floor((each / width) * size), 0), size - 1)) };
}

// The loss over (α, β), both by factors, in bands: `grid[row * points + column]` is at α of the row and β of the column.
// `bounds` are curves, with the side that is faded; `point` is the one that is moved, `trail` the way that led there.
function drawLandscape(canvas, { grid, points, low, high, least, optimum, bounds = [], trail = [], point = trail.at(-1), height = 340 }, colours) {
  const side = { low: Math.exp(low), high: Math.exp(high), log: true };
  const drawn = frame(canvas, Math.min(canvas.saved?.width || canvas.clientWidth, height), { ...side, label: "α, same topic" }, { ...side, label: "β, same word" }, colours);
  if (!drawn) return null;
  const { context, x, y, left, right, top, bottom } = drawn, colour = shades([fade(colours.paper, PALETTE.blue, 0.85), colours.paper]);
  const range = Math.log(1 + 1e4 * (Math.max(...grid) - least)) || 1;
  pixels(points, points, (row, column) => colour[Math.round(255 * Math.round(12 * Math.min(Math.log(1 + 1e4 * Math.max(grid[column * points + points - 1 - row] - least, 0)) / range, 1)) / 12)]);
  context.imageSmoothingEnabled = false;
  context.drawImage(spare, left, top, right - left, bottom - top);
  context.strokeRect(left, top, right - left, bottom - top);
  const inside = ([alpha, beta]) => [Math.min(Math.max(x.at(Math.max(alpha, 1e-12)), left), right), Math.min(Math.max(y.at(Math.max(beta, 1e-12)), top), bottom)];
  for (const { curve, outside, dash } of bounds) {
    const places = curve.map(inside);
    if (outside) {
      Object.assign(context, { fillStyle: colours.paper, globalAlpha: 0.5 });
      context.beginPath();
      for (const place of [...places, ...(outside === "above" ? [[right, bottom], [right, top], [left, top]] : [[left, bottom]])]) context.lineTo(...place);
      context.fill();
      context.globalAlpha = 1;
    }
    Object.assign(context, { strokeStyle: PALETTE.classes["[MASK]"], lineWidth: 2.5 });
    context.setLineDash(dash || []);
    line(context, places);
  }
  Object.assign(context, { strokeStyle: colours.ink, lineWidth: 1.5 });
  context.setLineDash([]);
  line(context, trail.map(inside));
  mark(context, inside([1, 1]), "square", colours.paper, colours.ink, 1.2);
  if (optimum) mark(context, inside(optimum), "cross", "", colours.ink, 1.4);
  if (point) mark(context, inside(point), "circle", PALETTE.orange, colours.ink, 1.5);
  context.restore();
  return drawn;
}

// As many colours as there are topics, neighbours far apart.
function topicColour(topic, topics, dark) {
  const hue = topics <= 12 ? (360 * topic) / topics : (topic * 137.508) % 360;
  const lightness = (dark ? [58, 68] : [44, 56])[topic % 2];
  return `hsl(${hue.toFixed(0)} 65% ${lightness}%)`;
}

const DOCUMENT_BYTES = 2008, ROOM = 400;

function readDocuments(bytes) {
  return Array.from({ length: bytes.length / DOCUMENT_BYTES }, (_, number) => {
    const at = number * DOCUMENT_BYTES, [length] = new Int32Array(bytes.buffer, at, 1);
    return {
      token: new Int16Array(bytes.buffer, at + 8, length),
      word: new Int16Array(bytes.buffer, at + 8 + 2 * ROOM, length),
      masked: new Uint8Array(bytes.buffer, at + 8 + 4 * ROOM, length),
    };
  });
}

// A square per word, coloured by topic. Masked: a dark square for [MASK], a frame for a kept or random word; the dot is
// the topic of the word to be predicted.
function drawDocuments(canvas, bytes, settings, colours) {
  const size = 12, columns = Math.max(10, Math.floor(canvas.clientWidth / size)), shown = [], dark = isDark(colours);
  let height = 0;
  for (const document of readDocuments(bytes)) {
    const lines = Math.ceil(document.token.length / columns);
    if (shown.length >= 2 && height + lines * size > 130) break;
    shown.push({ document, top: height });
    height += lines * size + 8;
  }
  const drawn = pen(canvas, Math.max(height - 8, size));
  if (!drawn) return;
  const { context } = drawn, colour = (word) => topicColour(Math.floor((word - 1) / settings.words), settings.topics, dark);
  const disc = (x, y, radius, fill) => { context.beginPath(); context.arc(x, y, radius, 0, 7); context.fillStyle = fill; context.fill(); };
  for (const { document, top } of shown) {
    document.token.forEach((token, place) => {
      const x = (place % columns) * size, y = top + Math.floor(place / columns) * size;
      context.fillStyle = token ? colour(token) : colours.ink;
      context.fillRect(x, y, size - 1.5, size - 1.5);
      if (!document.masked[place]) return;
      if (token) {
        Object.assign(context, { strokeStyle: colours.ink, lineWidth: 2 });
        context.strokeRect(x + 0.5, y + 0.5, size - 2.5, size - 2.5);
        if (token === document.word[place]) return;
        disc(x + 5.25, y + 5.25, 3.6, colours.paper);
      }
      disc(x + 5.25, y + 5.25, 2.7, colour(document.word[place]));
    });
  }
}
