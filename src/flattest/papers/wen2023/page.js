// Figure 3: where on the circle the memorizer is not 0.
function circlePanel(id, runs) {
  const { angle, half_angle: halves, covered } = runs.find((run) => run.series.angle)?.series ?? {};
  if (!angle) return [];
  return [make("div", { class: "circles" }, halves.map((half, i) => make("figure", {}, circle(angle, half),
    make("figcaption", { class: "dim" }, `Active on ${(100 * covered[i]).toFixed(0)} % of the circle`))))];
}

function circle(angles, half) {
  const at = (a) => `${Math.cos(a).toFixed(4)} ${(-Math.sin(a)).toFixed(4)}`;
  const svg = shape("svg", { viewBox: "-1.1 -1.1 2.2 2.2", role: "img", "aria-label": `${angles.length} training points on a circle, each with the arc on which its neuron is active` });
  svg.append(shape("circle", { r: 1, fill: "none", stroke: "currentColor", "stroke-width": 0.01 }));
  angles.forEach((a, i) => {
    svg.append(shape("path", { d: `M ${at(a - half[i])} A 1 1 0 0 0 ${at(a + half[i])}`, fill: "none", stroke: BLUE, "stroke-width": 0.1, opacity: 0.6 }));
    svg.append(shape("circle", { cx: Math.cos(a), cy: -Math.sin(a), r: 0.03, fill: RED }));
  });
  return svg;
}

PANELS["wen2023/circle_memorizer"] = circlePanel;
