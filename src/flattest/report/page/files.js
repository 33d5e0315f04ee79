// What is seen, as files: a table or a plot as CSV, a plot as PNG.
function download(name, blob) {
  const address = URL.createObjectURL(blob), link = make("a", { href: address, download: name.replace(/[^\w.=-]+/g, "-") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function csv(rows) {
  const cell = (value) => { const text = String(value ?? ""); return /[",\n]/.test(text) ? `"${text.replaceAll("\"", "\"\"")}"` : text; };
  return new Blob([rows.map((values) => `${values.map(cell).join(",")}\n`).join("")], { type: "text/csv" });
}

function button(text, title, act) {
  const found = make("button", { type: "button", class: "tool", title }, text);
  found.addEventListener("click", act);
  return found;
}

// The points of a plot that lie within its axes.
function seenPoints(traces, { horizontal, vertical }) {
  const inside = (value, [low, high]) => value !== null && value !== undefined && value >= low && value <= high;
  return traces.flatMap(({ name, x, y, right }) => x.map((at, i) => [name ?? "", at, y[i]])
    .filter(([, at, up]) => inside(at, horizontal.domain) && (right ? up !== null : inside(up, vertical.domain))));
}

const COPIED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "visibility"];

// A copy of a drawing that needs no style sheet.
function standalone(picture) {
  const copy = picture.cloneNode(true), from = [picture, ...picture.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of COPIED) to[i].setAttribute(name, style.getPropertyValue(name));
    if (style.filter !== "none") to[i].style.filter = style.filter;
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return copy;
}

// A drawing with its title above and its keys below, as a picture of twice the size on the screen.
async function png(title, picture, keys) {
  const { width, height } = picture.viewBox.baseVal, head = 26, line = 18;
  const rows = keysInRows(keys, width), canvas = make("canvas"), context = canvas.getContext("2d"), style = getComputedStyle(document.body);
  canvas.width = 2 * width;
  canvas.height = 2 * (head + height + line * rows.length + 6);
  context.scale(2, 2);
  context.fillStyle = style.backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = style.color;
  context.font = `600 14px ${style.fontFamily}`;
  context.fillText(title, 8, 18);
  context.drawImage(await image(standalone(picture), width, height), 0, head, width, height);
  for (const [i, row] of rows.entries()) {
    for (const { sample, text, at } of row) {
      const y = head + height + line * i;
      if (sample) context.drawImage(await image(standalone(sample), 28, 10), at, y + 4, 28, 10);
      context.font = `12px ${style.fontFamily}`;
      context.fillText(text, at + (sample ? 33 : 0), y + 13);
    }
  }
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function keysInRows(keys, width) {
  const rows = [[]], context = make("canvas").getContext("2d");
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  let at = 8;
  for (const key of keys) {
    const sample = key.querySelector("svg"), text = key.textContent, wide = context.measureText(text).width + (sample ? 33 : 0) + 14;
    if (at + wide > width && rows.at(-1).length) { rows.push([]); at = 8; }
    rows.at(-1).push({ sample, text, at });
    at += wide;
  }
  return rows[0].length ? rows : [];
}

async function image(picture, width, height) {
  picture.setAttribute("width", width);
  picture.setAttribute("height", height);
  const found = new Image();
  found.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(picture))}`;
  await found.decode();
  return found;
}
