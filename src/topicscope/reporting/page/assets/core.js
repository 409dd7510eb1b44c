"use strict";
// Unpacks the page's arrays; colours of the reader's theme; elements; saving.

const $ = (id) => document.getElementById(id);
const DATA = JSON.parse($("data").textContent);
const DARK = matchMedia("(prefers-color-scheme: dark)");
const PRINT = matchMedia("print");
// Okabe and Ito's colours, told apart by colour-blind eyes, yellow and sky blue darker than theirs: each has 3:1 contrast with both papers.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#3a96cc"];
let BUFFER = null;

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Many events per painted frame are one act, on what the last of them gave.
function oncePerFrame(act) {
  let last = null;
  return (...given) => {
    if (last === null) requestAnimationFrame(() => {
      const now = last;
      last = null;
      act(...now);
    });
    last = given;
  };
}

async function unpacked(id) {
  const text = atob($(id).textContent.trim());
  const packed = Uint8Array.from(text, (character) => character.charCodeAt(0));
  $(id).remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function bytes(reference) {
  const entry = DATA.arrays[reference.$];
  return new Uint8Array(BUFFER, entry.at, entry.bytes);
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent === 0) return sign * 2 ** -14 * (fraction / 1024);
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * 2 ** (exponent - 15) * (1 + fraction / 1024);
}

// An array's numbers in a row, and its shape.
function numbers(reference) {
  const entry = DATA.arrays[reference.$];
  const count = entry.shape.reduce((product, size) => product * size, 1);
  if (entry.kind === "float32") return new Float32Array(BUFFER, entry.at, count);
  if (entry.kind === "planes") return joined(new Uint8Array(BUFFER, entry.at, count));
  const packed = new Uint16Array(BUFFER, entry.at, count);
  return Float64Array.from(packed, (bits) => entry.low + entry.scale * half(bits));
}

// Numbers whose bytes of equal weight lie together.
function joined(planes) {
  const count = planes.length / 4, together = new Uint8Array(planes.length);
  for (let plane = 0; plane < 4; plane++) for (let at = 0; at < count; at++) together[4 * at + plane] = planes[plane * count + at];
  return new Float32Array(together.buffer);
}

const shape = (reference) => DATA.arrays[reference.$].shape;

// One frame of matrices kept as bytes.
function frame(reference, place) {
  const entry = DATA.arrays[reference.$], size = entry.shape[1] * entry.shape[2];
  const packed = new Uint8Array(BUFFER, entry.at + place * size, size);
  const low = entry.low[place], scale = entry.scale[place];
  return rows(Float32Array.from(packed, (value) => low + scale * value), entry.shape[2]);
}

function rows(flat, width) {
  const found = [];
  for (let at = 0; at < flat.length; at += width) found.push(flat.subarray(at, at + width));
  return found;
}

async function loadLibrary() {
  // Its hash is in the policy; any other script would be refused.
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await unpacked("library"));
  document.head.append(script);
}

function shown(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return powers(Math.abs(value) >= 1e5 ? value.toExponential(3) : String(Number(value.toPrecision(4))));
}

// Three digits, for tables of many columns.
function short(value) {
  if (value === 0 || value === null || Number.isNaN(value)) return value === 0 ? "0" : "–";
  const size = Math.abs(value);
  return powers(size < 1e-3 || size >= 1e4 ? value.toExponential(2) : String(Number(value.toPrecision(3))));
}

// Text from outside, where the plotting library would take tags for markup.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const unplain = (text) => String(text).replace(/<br>/g, " ").replace(/<sup>/g, "^").replace(/<sub>/g, "_").replace(/<\/su[pb]>/g, "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

// The paper's symbols in plain text, as in `reporting/symbols.py`.
const SYMBOL = /([Wb])\^(pred|[A-Z](?![a-z]))(⊤?)|\b([pd])_([a-z])\b/g;
// For the plotting library, which knows a little markup.
const marked = (text) => plain(text).replace(SYMBOL, (_, big, up, turned, low, index) => (big ? `${big}<sup>${up}${turned}</sup>` : `${low}<sub>${index}</sub>`));

// Numbers such as 3e-05, as in `reporting/rounding.py`.
const powers = (text) => text.replace(/(?<![\w.])(?<![\w.]-)(\d+(?:\.\d+)?)e([+-]?)0*(\d+)(²|\b)/g, (_, number, sign, digits, square) => {
  const written = (number === "1" ? "" : number + "·") + "10" + (sign.replace("+", "") + digits).replace(/./g, (each) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(each)]);
  return square ? `(${written})²` : written;
});

// For the page: as MathML.
function typeset(element, written) {
  const text = powers(written);
  const node = (name, ...children) => {
    const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", name);
    made.append(...children);
    return made;
  };
  const pieces = [];
  let at = 0;
  for (const found of text.matchAll(SYMBOL)) {
    const [whole, big, up, turned, low, index] = found;
    pieces.push(text.slice(at, found.index), node("math", big
      ? node("msup", node("mi", big), node("mrow", node("mi", up), ...(turned ? [node("mi", turned)] : [])))
      : node("msub", node("mi", low), node("mi", index))));
    at = found.index + whole.length;
  }
  element.replaceChildren(...pieces, text.slice(at));
}

// A part of a file's name: letters, digits, dots, underscores and single hyphens.
const slug = (text) => String(text).replace(/α/g, "alpha").replace(/β/g, "beta").replace(/τ/g, "tau").replace(/[^\w.]+/g, "-").replace(/^[-.]+|[-.]+$/g, "");

function download(name, url) {
  make("a", { href: url, download: name }).click();
}

function downloadText(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  download(name, url);
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function csv(table) {
  const cell = (value) => {
    let text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value);
    // A spreadsheet must not take a word of a corpus for a formula.
    if (typeof value === "string" && /^'*[=@+\-\t\r]/.test(text) && Number.isNaN(Number(text))) text = "'" + text;
    return /[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  };
  return table.map((line) => line.map(cell).join(",")).join("\n") + "\n";
}
