"use strict";
// Elements are made with text nodes only, so that nothing in a store can become markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function shape(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.flat());
  return element;
}

async function unzipped(id) {
  const text = document.getElementById(id).textContent.trim();
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

// What a reader has chosen (by the control's id), which outlives a redrawing of its card.
const chosen = new Map();

function choice(id, otherwise) {
  return chosen.has(id) ? chosen.get(id) : otherwise;
}

function checkbox(id, text, otherwise, changed) {
  const input = make("input", { type: "checkbox", id });
  input.checked = choice(id, otherwise);
  input.addEventListener("change", () => { chosen.set(id, input.checked); changed(input.checked); });
  return make("label", { for: id }, input, text);
}

function selection(id, text, options, changed) {
  const select = make("select", { id }, options.map(([value, name]) => make("option", { value }, name)));
  const before = choice(id, options[0][0]);
  select.value = options.some(([value]) => value === before) ? before : options[0][0];
  select.addEventListener("change", () => { chosen.set(id, select.value); changed(select.value); });
  return make("label", { for: id }, text, select);
}

// A slider over 0 … count − 1, which says what it stands at.
function slider(id, text, count, otherwise, label, changed) {
  const at = Math.min(choice(id, otherwise), count - 1);
  const input = make("input", { type: "range", id, min: 0, max: count - 1, step: 1 });
  const output = make("output", { for: id }, label(at));
  input.value = at;
  input.setAttribute("aria-valuetext", label(at));
  input.addEventListener("input", () => {
    const now = Number(input.value);
    chosen.set(id, now);
    output.textContent = label(now);
    input.setAttribute("aria-valuetext", label(now));
    changed(now);
  });
  return make("label", { for: id }, text, input, output);
}

// A grade of the scale of evidence after its glyph, with what it rests on.
function graded(glyphs, grade, basis = "") {
  const kind = { proven: "met", supported: "met", refuted: "missed", open: "dim" }[grade];
  return make("span", { class: kind }, `${glyphs[grade]} ${grade}${basis && ` (${basis})`}`);
}

function verdict(met) {
  if (met === null) return make("span", { class: "dim" }, "? not judged");
  return make("span", { class: met ? "met" : "missed" }, met ? "✓ met" : "✗ not met");
}

function shortNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function grid(head, rows, attributes = {}) {
  return make("div", { class: "table", tabindex: 0, role: "region", "aria-label": attributes.caption ?? "Table" },
    make("table", { class: "stacked" }, attributes.caption ? make("caption", { class: "dim" }, attributes.caption) : null,
      make("thead", {}, make("tr", {}, head.map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, rows)));
}

function row(head, first, ...cells) {
  return make("tr", {}, make("th", { scope: "row" }, first),
    cells.map((cell, index) => make("td", { "data-head": head[index + 1] }, cell)));
}
