// The page: its arrays unpacked, panels with pictures that can be saved, tables that sort and filter, and links that open
// what is folded.

const DATA = JSON.parse($("data").textContent);
let BUFFER = null;

async function unpacked(id) {
  const packed = Uint8Array.from(atob($(id).textContent.trim()), (character) => character.charCodeAt(0));
  $(id).remove();
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

// An array's numbers in a row: float32, or matrices kept as bytes, each with its own range.
function numbers(reference, place = null) {
  const { kind, at, shape, low, scale } = DATA.arrays[reference.$], count = shape.reduce((product, size) => product * size, 1);
  if (kind === "float32") return new Float32Array(BUFFER, at, count);
  const size = count / shape[0], first = low[place], step = scale[place];
  return Float32Array.from(new Uint8Array(BUFFER, at + place * size, size), (value) => first + step * value);
}
const shape = (reference) => DATA.arrays[reference.$].shape;

// The numbers along the last axis of an array, at these places along the others.
function row(reference, ...places) {
  const sizes = shape(reference), width = sizes.at(-1);
  const at = places.reduce((sum, place, axis) => sum * sizes[axis] + place, 0);
  return numbers(reference).subarray(at * width, (at + 1) * width);
}

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, place) => { if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = place; });
  return best;
}

// A part of a file's name: letters, digits, dots, underscores and single hyphens.
const slug = (text) => String(text).replace(/[αβτ]/g, (each) => ({ α: "alpha", β: "beta", τ: "tau" })[each]).replace(/[^\w.]+/g, "-").replace(/^[-.]+|[-.]+$/g, "");

function csv(table) {
  const cell = (value) => {
    let text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value);
    // A spreadsheet must not take a word of a corpus for a formula.
    if (typeof value === "string" && /^'*[=@+\-\t\r]/.test(text) && Number.isNaN(Number(text))) text = "'" + text;
    return /[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  };
  return table.map((line) => line.map(cell).join(",")).join("\n") + "\n";
}

// ---- panels

// A picture with its title, legend, a sentence, and what saves it. `spec` has `title`, `draw(canvas, colours)`, and where
// there are any `legend`, `said`, `table()`, `file()`, and `seen(frame, x, y, pressed)`, which a pointer's place is given.
const PANELS = new Set();
class Panel {
  constructor(id, kind = "") {
    this.parts = Object.fromEntries(Object.entries({ title: "figcaption", legend: "p", said: "p" }).map(([name, tag]) => [name, make(tag, { class: name })]));
    this.canvas = make("canvas", { role: "img" });
    const button = (label, act) => make("button", { type: "button", onclick: act }, label);
    this.save = make("div", { class: "save", role: "group" }, button("PNG", () => this.savePicture()), button("CSV", () => download(this.spec.file() + ".csv", csv(this.spec.table()), "text/csv")));
    this.element = make("figure", { class: `panel ${kind}`, id }, this.parts.title, this.canvas, this.parts.legend, this.parts.said, this.save);
    for (const name of ["pointermove", "pointerdown"]) this.canvas.addEventListener(name, (event) => this.frame && this.spec.seen?.(this.frame, event.offsetX, event.offsetY, event.buttons > 0));
    PANELS.add(this);
    sizes.observe(this.element);
  }

  show(spec) {
    this.spec = spec;
    this.parts.title.replaceChildren(...math(spec.title));
    this.parts.legend.replaceChildren(...(spec.legend || []));
    this.canvas.setAttribute("aria-label", spec.title);
    this.save.setAttribute("aria-label", `Save ${spec.title}`);
    this.say(spec.said || "");
    this.draw();
  }

  say(text) { this.parts.said.replaceChildren(...math(text)); }

  draw() { if (this.spec && this.element.isConnected) this.frame = this.spec.draw(this.canvas, theme()); }

  savePicture() {
    const paper = make("canvas"), picture = make("canvas");
    picture.saved = { width: Math.max(this.canvas.clientWidth, 480), ratio: 3 };
    this.spec.draw(picture, LIGHT);
    Object.assign(paper, { width: picture.width, height: picture.height + 90 });
    const context = paper.getContext("2d");
    Object.assign(context, { fillStyle: LIGHT.paper, font: "600 40px system-ui, sans-serif" });
    context.fillRect(0, 0, paper.width, paper.height);
    context.fillStyle = LIGHT.ink;
    context.fillText(this.spec.title, 20, 56, paper.width - 40);
    context.drawImage(picture, 0, 90);
    download(this.spec.file() + ".png", paper.toDataURL("image/png"));
  }

  remove() {
    PANELS.delete(this);
    this.element.remove();
  }
}

const drawAll = oncePerFrame(() => PANELS.forEach((panel) => panel.draw()));
const sizes = new ResizeObserver(drawAll);

// Curves of a panel as a table: a line per point.
function tableOf(curves) {
  const lines = [["curve", "step", "value"]];
  for (const { name, steps: at, values } of curves) at.forEach((step, place) => lines.push([name, step, values[place]]));
  return lines;
}

// Drawings of the folder, which were made beforehand.
function showDrawings() {
  for (const figure of document.querySelectorAll("[data-drawing]")) {
    const { at, shape: [size] } = DATA.arrays[DATA.drawings[figure.dataset.drawing].$], content = new Uint8Array(BUFFER, at, size);
    const picture = figure.querySelector("img");
    picture.src = URL.createObjectURL(new Blob([content], { type: "image/svg+xml" }));
    figure.querySelector("button").addEventListener("click", () => download(picture.dataset.name + ".svg", content, "image/svg+xml"));
  }
}

// ---- tables

function cellOrder(line, column) {
  const cell = line.cells[column], order = cell.dataset.full ?? cell.textContent.trim(), value = order === "" ? NaN : Number(order);
  return Number.isNaN(value) ? order : value;
}

function sortBy(table, column) {
  const heads = [...table.tHead.rows[0].cells], up = heads[column].getAttribute("aria-sort") !== "ascending", body = table.tBodies[0];
  heads.forEach((cell, place) => cell.setAttribute("aria-sort", place === column ? (up ? "ascending" : "descending") : "none"));
  const compare = (a, b) => {
    const [left, right] = [cellOrder(a, column), cellOrder(b, column)];
    return typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right), "en", { numeric: true });
  };
  body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) * compare(a, b)));
}

function filterClaims(section) {
  const wanted = [...section.querySelectorAll("[data-filter]")].map((each) => [each.dataset.filter, each.value]), claims = [...section.querySelectorAll("details.claim")];
  for (const claim of claims) claim.hidden = !wanted.every(([name, value]) => !value || (name === "words" ? claim.textContent.toLowerCase().includes(value.toLowerCase()) : claim.dataset[name] === value));
  section.querySelector("[data-count]").textContent = `${claims.filter((claim) => !claim.hidden).length} of ${claims.length} claims`;
}

// A number that is shown to a few digits is saved with all.
const tableText = (table) => [...table.rows].filter((each) => !each.hidden).map((each) => [...each.cells].map((cell) => cell.dataset.full ?? cell.textContent.trim().replace(/\s+/g, " ")));

function showTables() {
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((cell, column) => cell.querySelector("button").addEventListener("click", () => sortBy(table, column)));
    // On a small screen cells stand below each other, each with its column's name; style takes away the table's roles.
    for (const each of [table, ...table.querySelectorAll("thead, tbody, tr, th, td")])
      each.setAttribute("role", { TABLE: "table", TR: "row", TH: "columnheader", TD: "cell" }[each.tagName] || "rowgroup");
    for (const each of table.tBodies[0].rows) [...each.cells].forEach((cell, column) => { cell.dataset.label = heads[column].textContent.trim(); });
    table.parentElement.after(make("div", { class: "controls" }, make("button", { type: "button", onclick: () => download(table.dataset.name + ".csv", csv(tableText(table)), "text/csv") }, "CSV")));
  }
  for (const filter of document.querySelectorAll("[data-filter]")) filter.addEventListener("input", () => filterClaims(filter.closest("section")));
  for (const count of document.querySelectorAll("[data-count]")) filterClaims(count.closest("section"));
  for (const button of document.querySelectorAll("[data-copy]")) {
    const text = button.parentElement.querySelector(".command");
    // Without the clipboard, which a sandboxed frame may not have, the text is at least selected.
    button.addEventListener("click", () => copyText(text.textContent, () => { button.textContent = "Copied"; }, () => { getSelection().selectAllChildren(text); button.textContent = "Selected: copy it"; }));
  }
}

// ---- links and presenting

function openTarget() {
  const target = location.hash && $(decodeURIComponent(location.hash.slice(1)));
  setPresent(location.hash === "#present");
  if (!target) return;
  const section = target.closest("section");
  if (target.closest("[hidden]")) {
    for (const filter of section.querySelectorAll("[data-filter]")) filter.value = "";
    filterClaims(section);
  }
  for (let folded = target.closest("details") || target.querySelector("details.part"); folded; folded = folded.parentElement.closest("details")) folded.open = true;
  (target.querySelector("summary") || target).focus({ preventScroll: true });
  target.scrollIntoView();
}

// Figures and sliders alone, in large type.
function setPresent(wanted) {
  document.documentElement.classList.toggle("present", wanted);
  drawAll();
  if (!wanted) return;
  scrollTo({ top: 0, behavior: "instant" });
  document.querySelector(".player input[type=range]")?.focus({ preventScroll: true });
}

async function start() {
  showTables();
  BUFFER = await unpacked("arrays");
  showDrawings();
  for (const [id, spec] of Object.entries(DATA.players)) PLAYERS[id] = new Player(id, spec);
  if (DATA.landscapes.length) showLandscapes();
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => PANELS.forEach((panel) => panel.draw()));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
  // What was folded had no width to draw in.
  document.addEventListener("toggle", drawAll, true);
  addEventListener("hashchange", openTarget);
  $("present")?.addEventListener("click", () => setPresent(true));
  $("whole-page").addEventListener("click", () => {
    if (location.hash === "#present") history.replaceState(null, "", location.pathname);
    setPresent(false);
  });
  if (location.hash) openTarget();
  lowerSuperscripts();
  document.documentElement.dataset.ready = "yes";
}

start();
