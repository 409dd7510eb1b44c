// Tables that sort and filter, and claims that open where a link leads.

function cellOrder(row, column) {
  const cell = row.cells[column], order = cell.dataset.full ?? cell.textContent.trim();
  const value = order === "" ? NaN : Number(order);
  return Number.isNaN(value) ? order : value;
}

function sortBy(table, column) {
  const head = table.tHead.rows[0].cells[column];
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const cell of table.tHead.rows[0].cells) cell.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = table.tBodies[0], lines = [...body.rows];
  const compare = (a, b) => {
    const [left, right] = [cellOrder(a, column), cellOrder(b, column)];
    if (typeof left === "number" && typeof right === "number") return left - right;
    return String(left).localeCompare(String(right), "en", { numeric: true });
  };
  lines.sort((a, b) => (up ? 1 : -1) * compare(a, b));
  body.append(...lines);
}

// Filters act on the table, on the claims below it, and on the figures that these are listed under.
function filterClaims(section) {
  const wanted = Object.fromEntries([...section.querySelectorAll("[data-filter]")].map((each) => [each.dataset.filter, each.value]));
  const words = wanted.words.toLowerCase(), kept = new Set();
  const lines = section.querySelectorAll("table[data-name=claims] tbody tr");
  for (const line of lines) {
    const keep = ["source", "kind", "verdict"].every((name) => !wanted[name] || line.dataset[name] === wanted[name]) && line.textContent.toLowerCase().includes(words);
    line.hidden = !keep;
    if (keep) kept.add(line.dataset.claim);
  }
  for (const claim of section.querySelectorAll(".claim")) claim.hidden = !kept.has(claim.dataset.claim);
  for (const drawn of section.querySelectorAll(".drawn")) drawn.hidden = !drawn.querySelector(".claim:not([hidden])");
  section.querySelector("[data-count]").textContent = `${kept.size} of ${lines.length} claims`;
}

function htmlTable(table) {
  // A number that is shown to a few digits is saved with all.
  const text = (cell) => cell.dataset.full ?? cell.textContent.trim().replace(/\s+/g, " ");
  return [...table.rows].filter((line) => !line.hidden).map((line) => [...line.cells].map(text));
}

// The numbers behind a drawing of the folder: its claims.
function claimsOf(panel) {
  const table = panel.closest("section").querySelector("table.sortable");
  if (!panel.closest(".drawn")) return htmlTable(table);
  const lines = [["claim", "quantity", "value"]];
  for (const claim of panel.parentElement.querySelectorAll(".claim")) {
    const names = [...claim.querySelectorAll("dt")], { id } = claim.dataset;
    for (const name of names) lines.push([id, name.textContent, name.nextElementSibling.textContent.trim()]);
  }
  return lines;
}

function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  setPresent(location.hash === "#present");
  if (!target) return;
  if (target.tagName === "DETAILS") {
    // A filter may have hidden it.
    if (target.hidden) {
      for (const filter of target.closest("section").querySelectorAll("[data-filter]")) filter.value = "";
      filterClaims(target.closest("section"));
    }
    target.open = true;
    target.querySelector("summary").focus({ preventScroll: true });
    chooseRunOf(target.dataset.id);
    target.scrollIntoView();
  } else if (target.tabIndex < 0) target.focus({ preventScroll: true });
}

// Names for cells that stand below each other on a small screen, where style takes the table's own roles away.
function labelCells(table, names) {
  table.setAttribute("role", "table");
  for (const part of [table.tHead, ...table.tBodies]) part.setAttribute("role", "rowgroup");
  for (const line of table.rows) line.setAttribute("role", "row");
  for (const head of table.tHead.rows[0].cells) head.setAttribute("role", "columnheader");
  for (const body of table.tBodies) for (const line of body.rows) [...line.cells].forEach((cell, column) => {
    cell.setAttribute("role", "cell");
    cell.dataset.label = names[column];
  });
}

function showTables() {
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((cell, column) => cell.querySelector("button").addEventListener("click", () => sortBy(table, column)));
    labelCells(table, heads.map((cell) => cell.textContent.trim()));
  }
  for (const section of document.querySelectorAll("section.claims")) {
    for (const filter of section.querySelectorAll("[data-filter]")) filter.addEventListener("input", () => filterClaims(section));
    filterClaims(section);
  }
  for (const button of document.querySelectorAll("[data-save-table]")) {
    button.addEventListener("click", () => {
      const table = button.closest("section").querySelector("table.sortable");
      downloadText(table.dataset.name + ".csv", csv(htmlTable(table)), "text/csv");
    });
  }
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", () => copy(button.parentElement.querySelector(".command"), button));
  }
  addEventListener("hashchange", openTarget);
}

// Without the clipboard, which a frame may not have, the text is at least chosen.
async function copy(text, button) {
  getSelection().selectAllChildren(text);
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Chosen: copy it";
  }
}
