// The claims ledger: a table that can be searched and filtered.

function claims(entries, problem, glyphs) {
  const table = make("div"), count = make("p", { role: "status", id: "claims-count" });
  const search = make("input", { type: "search", id: "claims-search", placeholder: "words" });
  search.value = choice("claims-search", "");
  const show = () => {
    const found = entries.filter(wanted), checked = found.filter((entry) => entry.checked), rest = found.filter((entry) => !entry.checked);
    count.textContent = `${found.length} of ${entries.length} claims`;
    table.replaceChildren(...(checked.length ? [firstClaims(checked, glyphs)] : []), ...(rest.length ? [folded(rest, glyphs)] : []));
  };
  search.addEventListener("input", () => { chosen.set("claims-search", search.value); show(); });
  const options = (id, text, values) => selection(id, text, [["", "all"], ...values.map((value) => [value, value])], show);
  const controls = make("div", { class: "controls" }, make("label", { for: "claims-search" }, "search", search),
    options("claims-paper", "paper", unique(entries.map((c) => c.paper))), options("claims-status", "status", unique(entries.map(statusOf))),
    options("claims-grade", "grade", unique(entries.map(gradeOf).filter(Boolean))),
    options("claims-evidence", "evidence", unique(entries.map((c) => c.evidence))), checkbox("claims-misprints", "misprints only", false, show));
  show();
  return [problem ? make("p", { class: "missed" }, problem) : null,
    make("p", {}, "Every numbered statement of the papers as a check that can fail. A misprint has two entries: as printed, and as corrected. ",
      make("code", {}, "flattest verify"), " checks them."), controls, count, table];
}

// What was not checked here is a list of statements only: it takes no room until it is asked for.
function folded(entries, glyphs) {
  const fold = make("details", { id: "claims-unchecked" }, make("summary", {}, `${entries.length} that were not checked here`));
  const fill = () => { chosen.set("claims-unchecked", fold.open); if (fold.open && fold.children.length < 2) fold.append(firstClaims(entries, glyphs)); };
  fold.addEventListener("toggle", fill);
  fold.open = choice("claims-unchecked", false);
  return fold;
}

function unique(values) {
  return [...new Set(values)].sort();
}

function statusOf(entry) {
  return entry.checked ? entry.checked.status : "not checked here";
}

function gradeOf(entry) {
  return entry.checked?.grade ?? "";
}

function wanted(entry) {
  const words = choice("claims-search", "").toLowerCase().split(/\s+/).filter(Boolean);
  const text = [entry.id, entry.source, entry.statement, entry.checked?.note ?? ""].join(" ").toLowerCase();
  const is = (id, value) => ["", value].includes(choice(id, ""));
  return words.every((word) => text.includes(word)) && is("claims-paper", entry.paper) && is("claims-status", statusOf(entry)) && is("claims-grade", gradeOf(entry))
    && is("claims-evidence", entry.evidence) && (!choice("claims-misprints", false) || entry.reading);
}

// A table of hundreds of rows is made when it is asked for.
function firstClaims(entries, glyphs) {
  const box = make("div", {}, claimsTable(entries.slice(0, ROWS_AT_ONCE), glyphs));
  if (entries.length > ROWS_AT_ONCE) box.append(button(`Show all ${entries.length}`, "All rows", () => box.replaceChildren(claimsTable(entries, glyphs))));
  return box;
}

function claimsTable(entries, glyphs) {
  const head = ["claim", "statement", "evidence", "value", "must be", "status and grade"];
  const dim = (text) => text ? make("div", { class: "dim" }, text) : null;
  return grid(head, entries.map((entry) => row(head, [entry.id, make("br"), make("span", { class: "dim" }, entry.source)],
    [entry.reading ? make("strong", {}, `${entry.reading}: `) : null, entry.statement, dim(entry.checked?.note),
      dim(entry.refuted_by && `Would be refuted by ${entry.refuted_by}.`)],
    entry.evidence, entry.checked?.value ?? "", entry.checked?.bound ?? "", claimStatus(entry, glyphs))));
}

function claimStatus(entry, glyphs) {
  const found = entry.checked;
  if (!found) return make("span", { class: "dim" }, `not checked here (expected: ${entry.expected})`);
  return [make("span", { class: found.as_expected ? "" : "missed" }, `${found.as_expected ? "" : "not as expected: "}${found.status}`),
    ...found.grade ? [" · ", graded(glyphs, found.grade, found.basis)] : []];
}
