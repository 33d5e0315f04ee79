// Every run: a table to search and sort, and runs drawn over each other.
const ROWS_AT_ONCE = innerWidth < 600 ? 12 : 50, OVER_EACH_OTHER = 6, VARYING = innerWidth < 1200 ? 2 : 3;
const COLLATOR = new Intl.Collator("en", { numeric: true });
const COLUMNS = [
  ["experiment", (run) => run.label],
  ["seed", (run) => run.seed],
  ["status", (run) => run.status],
  ["sharpness", (run) => lastOf(run, "sharpness")],
  ["lower bound", (run) => lastOf(run, "bound")],
  ["test error", (run) => lastOf(run, "test_error")],
  ["train loss", (run) => lastOf(run, "train_loss")],
  ["seconds", (run) => Math.round(10 * run.seconds) / 10],
];

// The last of a series of training, or a single number.
function lastOf({ kind, series }, name) {
  const values = series[name];
  return values && (kind === "training" || values.length === 1) ? values.at(-1) : null;
}

function runTable(page) {
  const { tasks } = page.outline, every = Object.values(page.runs), compared = make("div", { id: "compared" });
  const table = make("div"), count = make("p", { role: "status", id: "runs-count" }), search = make("input", { type: "search", id: "runs-search", placeholder: "fig4b finished width=500" });
  search.value = choice("runs-search", "");
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), found = words.length ? every.filter(saying(words, tasks)) : every;
    const columns = [...COLUMNS, ...varying(found, tasks).map((name) => [name, (run) => tasks[run.task]?.[name] ?? null])];
    const sorted = inOrder(found, columns), shown = choice("runs-shown", ROWS_AT_ONCE);
    count.replaceChildren(`${found.length} of ${every.length} runs `, button("CSV", "These runs with all their settings as CSV", () => download("runs.csv", runsAsCsv(sorted, tasks))));
    table.replaceChildren(runGrid(sorted.slice(0, shown), columns, show, compare), sorted.length > shown ? button(`Show ${Math.min(4 * ROWS_AT_ONCE, sorted.length - shown)} more`, "More rows", () => { chosen.set("runs-shown", shown + 4 * ROWS_AT_ONCE); show(); }) : "");
  };
  const compare = () => compared.replaceChildren(...overEachOther(page, compare, show));
  search.addEventListener("input", () => { chosen.set("runs-search", search.value); chosen.set("runs-shown", ROWS_AT_ONCE); show(); });
  show();
  compare();
  return [make("p", {}, "Words of the search may be part of a name, a status or a setting. Tick runs to draw them over each other."),
    make("div", { class: "controls" }, make("label", { for: "runs-search" }, "search", search), sorting(show)), compared, count, table];
}

function saying(words, tasks) {
  const texts = new Map(Object.entries(tasks).map(([name, settings]) => [name, Object.entries(settings).map(([key, value]) => `${key}=${value}`).join(" ").toLowerCase()]));
  return (run) => {
    const text = `${run.label} ${run.key} ${run.status} seed=${run.seed} `.toLowerCase() + (texts.get(run.task) ?? "");
    return words.every((word) => text.includes(word));
  };
}

// The settings in which the runs differ, those that most of them have first.
function varying(runs, tasks) {
  const seen = new Map(), names = new Set(runs.map((run) => run.task));
  for (const name of names) for (const [key, value] of Object.entries(tasks[name] ?? {})) seen.set(key, (seen.get(key) ?? new Map()).set(value, (seen.get(key)?.get(value) ?? 0) + 1));
  const having = (key) => [...seen.get(key).values()].reduce((a, b) => a + b, 0);
  return [...seen.keys()].filter((key) => key !== "type" && (seen.get(key).size > 1 || having(key) < names.size)).sort((a, b) => having(b) - having(a)).slice(0, VARYING);
}

function inOrder(runs, columns) {
  const [name, way] = choice("runs-order", ["experiment", 1]);
  if (name === "experiment" && way > 0) return runs; // as the store has them
  const value = (columns.find(([column]) => column === name) ?? columns[0])[1];
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : COLLATOR.compare(a, b));
  const order = (a, b) => way * compare(a, b) || 0;
  const keyed = runs.map((run) => [value(run) ?? null, run]);
  // What is not known comes last in either order.
  keyed.sort(([a, r], [b, s]) => (a === null) - (b === null) || (a === null ? 0 : order(a, b)) || compare(r.label, s.label) || r.seed - s.seed);
  return keyed.map(([, run]) => run);
}

function runGrid(runs, columns, show, compare) {
  const [ordered, way] = choice("runs-order", ["experiment", 1]), head = ["over each other", ...columns.map(([name]) => name)];
  const header = ([name]) => {
    const sort = make("button", { type: "button", class: "sort", id: `runs-sort-${name}` }, `${name.replaceAll(".", ".\u200b")}${name === ordered ? (way > 0 ? " ↑" : " ↓") : ""}`);
    sort.addEventListener("click", () => { chosen.set("runs-order", [name, name === ordered ? -way : 1]); show(); document.getElementById(sort.id)?.focus(); });
    return make("th", { scope: "col", ...(name === ordered ? { "aria-sort": way > 0 ? "ascending" : "descending" } : {}) }, sort);
  };
  const rows = runs.map((run) => {
    const tick = make("input", { type: "checkbox", id: `over-${run.key}`, "aria-label": `${nameOf(run)} over others` });
    tick.checked = picked().includes(run.key);
    tick.addEventListener("change", () => { pick(run.key, tick.checked); tick.checked = picked().includes(run.key); compare(); });
    const cells = columns.map(([name, value], i) => make(i ? "td" : "th", i ? { "data-head": name } : { scope: "row" }, cellOf(value(run), name)));
    return make("tr", {}, make("td", { "data-head": "" }, make("label", { for: tick.id }, tick, make("span", { class: "hidden" }, `${nameOf(run)} over others`))), cells);
  });
  return make("div", { class: "table", tabindex: 0, role: "region", "aria-label": "Runs" }, make("table", { class: "stacked runs" },
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, make("span", { class: "hidden" }, head[0])), columns.map(header))), make("tbody", {}, rows)));
}

// Where there is no header to click.
function sorting(show) {
  const ways = COLUMNS.flatMap(([name]) => [[`${name} 1`, `${name} ↑`], [`${name} -1`, `${name} ↓`]]);
  const label = selection("runs-sort", "sorted by", ways, (value) => { const [, name, way] = value.match(/^(.*) (-?1)$/); chosen.set("runs-order", [name, Number(way)]); show(); });
  label.classList.add("narrow");
  return label;
}

function cellOf(value, name) {
  if (name === "status") return make("span", { class: { finished: "met", pending: "dim", running: "dim" }[value] ?? "missed" }, value);
  return typeof value === "number" ? shortNumber(value) : String(value ?? "–");
}

function runsAsCsv(runs, tasks) {
  const settings = [...new Set(runs.flatMap((run) => Object.keys(tasks[run.task] ?? {})))];
  return csv([["key", ...COLUMNS.map(([name]) => name), ...settings], ...runs.map((run) => [run.key, ...COLUMNS.map(([, value]) => value(run)), ...settings.map((name) => tasks[run.task]?.[name])])]);
}

function picked() {
  return choice("runs-picked", []);
}

// The last few that were ticked.
function pick(key, on) {
  chosen.set("runs-picked", [...picked().filter((other) => other !== key), ...(on ? [key] : [])].slice(-OVER_EACH_OTHER));
}

function overEachOther(page, compare, show) {
  const runs = picked().map((key) => page.runs[key]).filter(Boolean);
  if (!runs.length) return [];
  const drawn = runs.filter((run) => run.series.epoch), names = new Map(runs.map((run) => [run.key, nameOf(run)]));
  const curves = CURVES.filter(([series]) => drawn.some((run) => run.series[series]?.some((value) => value !== null)));
  const clear = button("Take all off", "Draw none over each other", () => { chosen.delete("runs-picked"); compare(); show(); });
  const plots = curves.map(([series, title, log]) => plot({
    id: `over-${series}`, title, traces: () => epochs(drawn.map((run) => [names.get(run.key), [run]]), series), axes: () => ({ x: EPOCH, y: { log } }),
  }));
  return [make("section", { class: "card" }, make("h3", {}, `${runs.length} ${runs.length === 1 ? "run" : "runs over each other"} `, clear),
    make("div", { class: "curves" }, plots), differences(runs, names, page.outline.tasks))];
}

function differences(runs, names, tasks) {
  const settings = [...new Set(runs.flatMap((run) => Object.keys(tasks[run.task] ?? {})))].filter((key) => new Set(runs.map((run) => tasks[run.task]?.[key])).size > 1);
  const head = ["", ...runs.map((run) => names.get(run.key))];
  const values = [...COLUMNS.slice(2).map(([name, value]) => [name, value]), ...settings.map((key) => [key, (run) => tasks[run.task]?.[key] ?? null])];
  return grid(head, values.map(([name, value]) => row(head, name, ...runs.map((run) => cellOf(value(run), name)))), { caption: "How they ended, and the settings in which they differ" });
}
