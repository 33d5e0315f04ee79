// A grid of values over two settings, as colours with the numbers in them.
const CIVIDIS = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"];

function mixed(colours, share) {
  const place = Math.min(Math.max(share, 0), 1) * (colours.length - 1), low = Math.min(Math.floor(place), colours.length - 2);
  const [from, to] = [hex(colours[low]), hex(colours[low + 1])];
  return from.map((channel, i) => Math.round(channel + (place - low) * (to[i] - channel)));
}

function hex(text) {
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
}

// `x` and `y` have a setting and its values; values[i][j] is at y.values[i] and x.values[j], null where there is none.
function heatMap({ id, title, x, y, values, most }) {
  const box = make("div", { class: "plot heat", id }), tools = make("span", { class: "tools" });
  box.draw = () => {
    const width = (box.drawnAt = box.clientWidth) || 300, height = box.clientHeight || 250;
    const picture = heatDrawing({ x, y, values, most, title, width, height });
    box.replaceChildren(picture);
    tools.replaceChildren(
      button("CSV", `${title} as CSV`, () => download(`${id}.csv`, csv([[y.setting, x.setting, "value"], ...values.flatMap((row, i) => row.map((value, j) => [y.values[i], x.values[j], value]))]))),
      button("PNG", `${title} as a picture`, async () => download(`${id}.png`, await png(title, picture, []))));
  };
  const head = [`${y.setting} \\ ${x.setting}`, ...x.values.map(shortNumber)];
  const rows = y.values.map((value, i) => row(head, shortNumber(value), ...values[i].map(shortNumber))).reverse();
  const about = make("figcaption", { class: "hidden" }, `${title}, ${y.setting} against ${x.setting}, from 0 (dark) to ${most} (bright).`);
  const figure = make("figure", { "aria-label": title }, make("div", { class: "title" }, make("span", {}, title), tools), box, about,
    make("details", { class: "dim" }, make("summary", {}, "As numbers"), grid(head, rows)));
  later(box);
  sizes.observe(box);
  return figure;
}

function heatDrawing({ x, y, values, most, title, width, height }) {
  const start = 58, end = width - 66, head = 6, foot = height - 40, wide = (end - start) / x.values.length, high = (foot - head) / y.values.length;
  const parts = [];
  values.forEach((row, i) => row.forEach((value, j) => {
    const colour = value === null ? null : mixed(CIVIDIS, value / most), left = start + j * wide, top = foot - (i + 1) * high;
    const bright = colour && (0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2]) > 120;
    parts.push(shape("rect", { class: colour ? "cell" : "cell none", x: left, y: top, width: wide, height: high, ...(colour ? { fill: `rgb(${colour.join(" ")})` } : {}) },
      shape("title", {}, `${y.setting} = ${shortNumber(y.values[i])}, ${x.setting} = ${shortNumber(x.values[j])}: ${shortNumber(value)}`)));
    if (wide > 34 && high > 16) parts.push(shape("text", { x: left + wide / 2, y: top + high / 2 + 4, "text-anchor": "middle", class: colour ? (bright ? "on-bright" : "on-dark") : "" }, value === null ? "–" : value.toFixed(2)));
  }));
  const every = Math.ceil(44 / wide);
  x.values.forEach((value, j) => { if (j % every === 0) parts.push(shape("text", { x: start + (j + 0.5) * wide, y: foot + 16, "text-anchor": "middle" }, tickText(value))); });
  y.values.forEach((value, i) => parts.push(shape("text", { x: start - 6, y: foot - (i + 0.5) * high + 4, "text-anchor": "end" }, tickText(value))));
  parts.push(shape("text", { x: (start + end) / 2, y: height - 6, "text-anchor": "middle" }, x.setting),
    shape("text", { transform: `translate(12 ${(head + foot) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.setting));
  for (let k = 0; k < 40; k++) {
    parts.push(shape("rect", { x: end + 14, y: foot - (k + 1) * (foot - head) / 40, width: 12, height: (foot - head) / 40 + 0.5, fill: `rgb(${mixed(CIVIDIS, (k + 0.5) / 40).join(" ")})` }));
  }
  for (const share of [0, 0.5, 1]) parts.push(shape("text", { x: end + 30, y: foot - share * (foot - head) + (share === 1 ? 10 : share ? 4 : 0) }, tickText(share * most)));
  return shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, parts);
}
