// One plot as SVG: lines, areas and dots over two axes.
const DASHES = { solid: "none", dash: "7 4", dot: "2 3", dashdot: "9 3 2 3", longdash: "13 4" };
const NEAR = 40;

// A frame has the scales of the axes and the edges of the area that they span.
function frameOf(width, height, traces, { x, y }) {
  const left = traces.filter((trace) => !trace.right);
  const xs = domainOf(left.map((trace) => trace.x), x, 0.02);
  const ys = domainOf(left.flatMap((trace) => [trace.y, trace.until ?? []]), y, 0.06);
  const foot = height - (x.title ? 38 : 22), head = 8;
  const vertical = scale(ys, y.log ?? false, foot, head), marks = ticks(vertical, height / 55);
  const start = 12 + 7 * Math.max(...marks.map((mark) => tickText(mark).length), 1) + (y.title ? 18 : 0), end = width - 12;
  const horizontal = scale(xs, x.log ?? false, start, end);
  return { width, height, start, end, head, foot, horizontal, vertical, marks, across: ticks(horizontal, (end - start) / 60, x.whole) };
}

function placed(trace, frame) {
  const rise = trace.right ? scale(domainOf([trace.y], { fromZero: true }, 0.06), false, frame.foot, frame.head) : frame.vertical;
  return { trace, x: trace.x.map(frame.horizontal.at), y: trace.y.map(rise.at), until: trace.until?.map(rise.at) };
}

function drawAxes(frame, { x, y }) {
  const { start, end, head, foot, height } = frame, parts = [];
  for (const mark of frame.marks) {
    const at = frame.vertical.at(mark);
    parts.push(shape("line", { class: "grid", x1: start, x2: end, y1: at, y2: at }),
      shape("text", { x: start - 6, y: at + 4, "text-anchor": "end" }, tickText(mark)));
  }
  for (const mark of frame.across) {
    const at = frame.horizontal.at(mark);
    parts.push(shape("line", { class: "grid", x1: at, x2: at, y1: head, y2: foot }),
      shape("text", { x: at, y: foot + 16, "text-anchor": "middle" }, tickText(mark)));
  }
  if (x.title) parts.push(shape("text", { x: (start + end) / 2, y: height - 4, "text-anchor": "middle" }, x.title));
  if (y.title) parts.push(shape("text", { transform: `translate(13 ${(head + foot) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.title));
  return shape("g", { class: "axes" }, parts);
}

// A path with a gap wherever a point has no place.
function pathOf(x, y) {
  let path = "", pen = "M";
  for (let i = 0; i < x.length; i++) {
    const there = Number.isFinite(x[i]) && Number.isFinite(y[i]);
    if (there) path += `${pen}${x[i].toFixed(1)} ${y[i].toFixed(1)}`;
    pen = there ? "L" : "M";
  }
  return path;
}

function areaOf({ x, y, until }) {
  const inside = x.map((_, i) => i).filter((i) => Number.isFinite(y[i]) && Number.isFinite(until[i]));
  const edge = (values, places) => places.map((i) => `${x[i].toFixed(1)} ${values[i].toFixed(1)}`).join("L");
  return inside.length ? `M${edge(y, inside)}L${edge(until, [...inside].reverse())}Z` : "";
}

const SYMBOLS = { circle: "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0Z", diamond: "M0-4.2L4.2 0L0 4.2L-4.2 0Z", square: "M-3-3H3V3H-3Z" };

function drawTrace(where) {
  const { trace, x, y } = where, parts = [];
  if (trace.until) parts.push(shape("path", { d: areaOf(where), fill: trace.colour, "fill-opacity": 0.18, stroke: "none" }));
  if (trace.line) parts.push(shape("path", { class: "line", d: pathOf(x, y), stroke: trace.colour, "stroke-dasharray": DASHES[trace.dash ?? "solid"] }));
  if (trace.dots) {
    x.forEach((at, i) => {
      if (Number.isFinite(at) && Number.isFinite(y[i])) parts.push(shape("path", { d: SYMBOLS[trace.symbol ?? "circle"], transform: `translate(${at.toFixed(1)} ${y[i].toFixed(1)})`, fill: trace.colours?.[i] ?? trace.colour }));
    });
  }
  return shape("g", { class: "trace" }, parts);
}

let clips = 0;
function drawing(frame, traces, axes, title) {
  const clip = `clip-${clips++}`, { start, end, head, foot, width, height } = frame;
  const points = traces.map((trace) => placed(trace, frame));
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    shape("clipPath", { id: clip }, shape("rect", { x: start, y: head - 4, width: end - start, height: foot - head + 8 })),
    drawAxes(frame, axes), shape("g", { class: "traces", "clip-path": `url(#${clip})` }, points.map(drawTrace)));
  return { picture, points };
}

// The point of a drawing that is nearest to a place in it.
function nearest(points, x, y) {
  let best = null, least = NEAR ** 2;
  for (const { trace, x: xs, y: ys } of points) {
    if (trace.quiet) continue;
    for (let i = 0; i < xs.length; i++) {
      const distance = (xs[i] - x) ** 2 + (ys[i] - y) ** 2;
      if (distance < least) [best, least] = [{ trace, i, x: xs[i], y: ys[i] }, distance];
    }
  }
  return best;
}

// Pointing shows values; dragging zooms (a finger scrolls the page instead).
function explore(box, picture, points, frame, zoom) {
  const tip = make("div", { class: "tip", hidden: "" }), ring = shape("circle", { class: "ring", r: 5, visibility: "hidden" });
  const chosenArea = shape("rect", { class: "area", visibility: "hidden" });
  let from = null;
  const at = (event) => {
    const edges = picture.getBoundingClientRect(), wide = frame.width / edges.width, high = frame.height / edges.height;
    const within = (value, low, up) => Math.min(Math.max(value, low), up);
    return [within((event.clientX - edges.left) * wide, frame.start, frame.end), within((event.clientY - edges.top) * high, frame.head, frame.foot)];
  };
  const hide = () => { tip.hidden = true; ring.setAttribute("visibility", "hidden"); };
  const showValues = ([x, y]) => {
    const found = nearest(points, x, y);
    if (!found) return hide();
    place(ring, { cx: found.x, cy: found.y, visibility: "visible" });
    tip.replaceChildren(...valuesOf(found).map((text) => make("div", {}, text)));
    tip.hidden = false;
    const share = 100 / frame.width, leftwards = found.x > frame.width / 2;
    tip.style.left = leftwards ? "auto" : `${(found.x + 10) * share}%`;
    tip.style.right = leftwards ? `${(frame.width - found.x + 10) * share}%` : "auto";
    tip.style.top = `${100 * Math.max(found.y - 30, 0) / frame.height}%`;
  };
  const span = ([x, y]) => ({ x: Math.min(x, from[0]), y: Math.min(y, from[1]), width: Math.abs(x - from[0]), height: Math.abs(y - from[1]) });
  picture.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") return showValues(at(event));
    if (event.button !== 0) return;
    from = at(event);
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    if (!from) return showValues(at(event));
    hide();
    place(chosenArea, { ...span(at(event)), visibility: "visible" });
  });
  picture.addEventListener("pointerup", (event) => {
    const area = from && span(at(event));
    from = null;
    chosenArea.setAttribute("visibility", "hidden");
    if (area && area.width > 8 && area.height > 8) zoom(area);
  });
  picture.addEventListener("pointerleave", hide);
  picture.append(ring, chosenArea);
  box.replaceChildren(picture, tip);
}

function valuesOf({ trace, i }) {
  if (trace.tip) return trace.tip(i);
  return [trace.name, `${shortNumber(trace.x[i])} → ${shortNumber(trace.y[i])}`];
}

function place(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}
