const DOES = ["generalizes", "mixed", "memorizes", "silent"];
const DOES_COLOURS = [BLUE, SKY, RED, "#888888"];
const DARK = matchMedia("screen and (prefers-color-scheme: dark)");
let repaint = () => {};
DARK.addEventListener("change", () => repaint());

// The first layer of a network at its checkpoints.
function networks(page) {
  const keys = Object.keys(page.networks).filter((key) => page.runs[key]);
  if (!keys.length) return null;
  keys.sort((a, b) => nameOf(page.runs[a]).localeCompare(nameOf(page.runs[b])));
  const holder = make("div");
  const show = () => holder.replaceChildren(...network(choice("network-run", keys[0]), page));
  if (!keys.includes(choice("network-run", keys[0]))) chosen.delete("network-run");
  const select = selection("network-run", "run", keys.map((key) => [key, nameOf(page.runs[key])]), show);
  show();
  return [make("p", {}, "A neuron memorizes where more than half of its squared activation comes from one training point. It generalizes where more than half of its squared weights lie on the inputs that the label depends on. It is silent where it is 0 on every training point."),
    make("div", { class: "controls" }, select), holder];
}

function nameOf(run) {
  return `${run.label}, seed ${run.seed}`;
}

function network(key, page) {
  const seen = page.networks[key], moments = seen.moments, last = moments.length - 1;
  if (seen.problem) return [make("p", { class: "missed", id: "network-summary" }, seen.problem)];
  const at = () => moments[Math.min(choice("network-epoch", last), last)];
  const weights = make("canvas", { role: "img", id: "network-weights" }), active = make("canvas", { role: "img", id: "network-active" });
  const about = make("p", { id: "network-summary", role: "status" }), table = make("div");
  const parts = partsPlot(seen, at, page.runs[key].series), points = pointsPlot(seen, at);
  const draw = repaint = () => {
    paintWeights(weights, seen, at());
    paintActive(active, seen, at());
    about.textContent = summary(seen, at());
    table.replaceChildren(largest(at()));
  };
  const move = slider("network-epoch", "checkpoint", moments.length, last, (i) => `epoch ${moments[i].epoch}`, () => { draw(); parts.redraw(); points.redraw(); });
  draw();
  return [make("div", { class: "controls" }, move), about, legend(),
    make("div", { class: "pictures" },
      make("figure", {}, titled("W1", weights, key), weights, make("figcaption", { class: "dim" }, `W1: ${seen.neurons} neurons (rows, the strip on the left says what they do) × ${seen.inputs} inputs; blue positive, orange negative`)),
      make("figure", {}, titled("Activation pattern", active, key), active, make("figcaption", { class: "dim" }, `Active (marked) on the training points: the same rows × ${seen.points} points, ${seen.relevant ? "by the signs of x[1] and x[2]" : "by label"}`)),
      make("div", {}, parts, points)),
    table];
}

function titled(text, canvas, key) {
  const save = () => canvas.toBlob((blob) => download(`${text}-${key}.png`, blob));
  return make("div", { class: "title" }, make("span", {}, text), make("span", { class: "tools" }, button("PNG", `${text} as a picture`, save)));
}

function legend() {
  return make("p", { class: "keys" }, DOES.map((name, i) => {
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = DOES_COLOURS[i];
    return make("span", { class: "key" }, swatch, `${name} `);
  }));
}

function summary({ width }, { epoch, counts, shares, points_per_neuron: points }) {
  const parts = DOES.map((name, i) => (counts[i] ? `${counts[i]} ${name} (${(100 * shares[i]).toFixed(0)} % of the output)` : null)).filter(Boolean);
  return `Epoch ${epoch}: of ${width} neurons ${parts.join(", ")}; a neuron serves ${points.toFixed(1)} training points on average.`;
}

function paint(canvas, columns, rows, does, colour) {
  const strip = Math.max(1, Math.round(columns / 25)), strips = DOES_COLOURS.map((text) => toned(hex(text)));
  canvas.width = columns + strip;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns + strip, rows);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns + strip; j++) {
      const rgb = j < strip ? strips[does[i]] : colour(i, j - strip);
      image.data.set([...rgb, 255], 4 * (i * (columns + strip) + j));
    }
  }
  context.putImageData(image, 0, 0);
}

// A colour of the style, of a page that is light or dark now.
function ofStyle(name) {
  return hex(getComputedStyle(document.documentElement).getPropertyValue(name).trim());
}

// On a dark page colours are brighter, as those of the plots are.
function toned(rgb) {
  return DARK.matches ? rgb.map((channel) => Math.min(255, Math.round(1.45 * channel))) : rgb;
}

function paintWeights(canvas, seen, moment) {
  const values = new Int8Array(bytesOf(moment.weights).buffer), [up, down] = [toned(hex(BLUE)), hex(ORANGE)], ground = ofStyle("--paper");
  paint(canvas, seen.inputs, seen.neurons, moment.does, (i, j) => {
    const value = values[i * seen.inputs + j] / 127, end = value > 0 ? up : down;
    // The square root shows small weights beside large ones.
    return end.map((channel, k) => Math.round(ground[k] + (channel - ground[k]) * Math.sqrt(Math.abs(value))));
  });
  canvas.setAttribute("aria-label", `First-layer weights at epoch ${moment.epoch}, up to ${shortNumber(moment.scale)}. ${summary(seen, moment)}`);
}

function paintActive(canvas, seen, moment) {
  const bits = bytesOf(moment.active), active = ofStyle("--active"), ground = ofStyle("--paper");
  const on = (i, j) => { const place = i * seen.points + j; return (bits[place >> 3] >> (7 - (place & 7))) & 1; };
  paint(canvas, seen.points, seen.neurons, moment.does, (i, j) => (on(i, j) ? active : ground));
  let count = 0;
  for (let i = 0; i < seen.neurons; i++) for (let j = 0; j < seen.points; j++) count += on(i, j);
  canvas.setAttribute("aria-label", `Activation pattern at epoch ${moment.epoch}: ${(100 * count / (seen.neurons * seen.points)).toFixed(0)} % of the pairs of neuron and training point are active.`);
}

function partsPlot(seen, at, { epoch, test_error: error }) {
  const x = seen.moments.map(fromOne);
  return plot({
    id: "network-parts", title: "Part of the output, and the test error",
    traces: () => [...DOES.slice(0, 3).map((name, i) => line(name, x, seen.moments.map((m) => m.shares[i]), DOES_COLOURS[i], { dots: true, dash: PATTERNS[i] })),
      ...(epoch && error ? [line("test error", epoch, error, INK)] : []), here(at(), 1)],
    axes: () => ({ x: EPOCH, y: { range: [-0.02, 1.02] } }),
  });
}

function pointsPlot(seen, at) {
  return plot({
    id: "network-points", title: "Training points per neuron",
    traces: () => [line("points", seen.moments.map(fromOne), seen.moments.map((m) => m.points_per_neuron), GREEN, { dots: true }),
      here(at(), Math.max(...seen.moments.map((m) => m.points_per_neuron)))],
    axes: () => ({ x: EPOCH, y: { fromZero: true } }), legend: () => [],
  });
}

// A logarithmic axis has no place for epoch 0.
function fromOne({ epoch }) {
  return Math.max(epoch, 1);
}

function here(moment, height) {
  return line("shown", Array(2).fill(fromOne(moment)), [0, height], INK, { dash: "dot", quiet: true });
}

function largest(moment) {
  const head = ["neuron", "W1[1]", "W1[2]", "‖W1[3:d]‖"];
  return grid(head, moment.largest.map((values, i) => row(head, `no. ${i + 1} by norm`, ...values.map(shortNumber))), { caption: "The neurons of largest norm, as in Figure 2b of wen2023" });
}
