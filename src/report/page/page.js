"use strict";
// Reads the data, builds a section for each picture and keeps it drawn. For tests the root element carries data-ready
// ("yes" when all is drawn), data-pictures (how many), data-errors (texts of script errors), data-overflow.

const root = document.documentElement;
const errors = [];

function note(error) {
  errors.push(String(error?.message ?? error));
  root.dataset.errors = errors.join(" | ");
}
addEventListener("error", (event) => note(event.error ?? event.message));
addEventListener("unhandledrejection", (event) => note(event.reason));
addEventListener("securitypolicyviolation", (event) => note(`blocked: ${event.blockedURI} ${event.violatedDirective}`));

// An element with attributes and children; strings become text, never HTML.
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

async function inflate(id) {
  const text = document.getElementById(id).textContent.trim();
  if (!text) return null;
  const stream = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function download(name, text) {
  const link = el("a", {href: URL.createObjectURL(new Blob([text], {type: "text/csv"})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// RFC 4180; a text that a spreadsheet would take for a formula gets a leading apostrophe.
function csv({columns, rows}) {
  const cell = (x) => {
    if (x === null || x === undefined) return "";
    if (typeof x === "number") return String(x);
    const text = /^[=+\-@]/.test(x) ? `'${x}` : String(x);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
}

// Links, each {to, text, title, follow}: follow() does more than go there.
function linkList(links, between = ", ") {
  return links.flatMap(({to, text, title = "", follow}, i) => {
    const link = el("a", {href: to, ...(title ? {title} : {})}, text);
    if (follow) link.addEventListener("click", follow);
    return i ? [between, link] : [link];
  });
}

// The numbers of most tables are in results.json; those of the extras are in the page alone.
const kOwnData = "the data of this page, which results.json lacks";

// Cells of a column that `links` has are shown as the links that links[column](row) gives.
function tableElement({name, columns, rows, note = "", source = "results.json", most = 20000, links = {}}) {
  const isText = (x) => typeof x === "string";
  const show = (x) => (typeof x === "number" ? (Number.isInteger(x) && Math.abs(x) < 1e9 ? String(x) : formatNumber(x)) : x ?? "–");
  const cell = (x, row, column) => el("td", isText(x) ? {class: "text"} : {}, ...(columns[column] in links ? linkList(links[columns[column]](row)) : [show(x)]));
  const body = el("tbody", {}, ...rows.slice(0, most).map((row, r) => el("tr", {}, ...row.map((x, c) => cell(x, r, c)))));
  const head = el("thead", {}, el("tr", {}, ...columns.map((c, i) => el("th", {scope: "col", ...(isText(rows[0]?.[i]) ? {class: "text"} : {})}, c))));
  const caption = `${name}, from ${source}: ${rows.length} rows` + (rows.length > most ? `, the first ${most} shown; the CSV has all` : "") + (note ? `; ${note}` : "");
  return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": `Table ${name}`}, el("table", {}, el("caption", {}, caption), head, body));
}

// <details> whose table is made when it is opened; fill(table) gives it new content.
function tableDetails(open) {
  const button = el("button", {type: "button"}, "Download CSV");
  const place = el("div");
  const details = el("details", {class: "behind"}, el("summary", {}, "The table behind it"), button, place);
  let table = null;
  const render = () => { if (details.open && table) place.replaceChildren(tableElement(table)); };
  details.open = open;
  details.addEventListener("toggle", render);
  button.addEventListener("click", () => download(`${table.name}.csv`, csv(table)));
  return {details, fill(next) {
    table = next;
    details.hidden = !next;
    render();
  }};
}

// From a picture to the claims that it bears on, each with its verdict; from all claims to each.
function claimLinks(picture, report) {
  const all = picture === kStudyClaims;
  const claims = studyClaims(report).filter(({id}) => all || picture.claims?.includes(id));
  if (!claims.length) return null;
  const links = claims.map((claim) => claimLink(claim, `${claim.id}${all || claim.verdict === null ? "" : ` (${verdictText(claim.verdict)})`}`));
  const what = all ? "More on" : "Bears on";
  return el("p", {class: "bears"}, `${what} claim${claims.length > 1 ? "s" : ""} `, ...linkList(links), ".");
}

function definitions(keys, about, terms = []) {
  const entries = [...new Set(keys)].filter((key) => typeof key === "string").map((key) => [key, measureOf(key)]);
  return [el("summary", {}, "How to read it, and definitions"), el("p", {}, about),
    ...terms.map(([name, text]) => el("p", {}, el("strong", {}, `${name}. `), el("span", {class: "formula"}, text))),
    ...entries.map(([key, {name, text}]) => el("p", {}, el("strong", {}, `${name}. `), el("span", {class: "formula"}, text), ` Key in results.json: ${key}.`))];
}

function controlElement(view, control) {
  const set = (value) => view.set({...control.resets, [control.id]: value});
  const id = `${view.picture.id}-${control.id}`;
  if (control.button) {
    const button = el("button", {type: "button", id}, control.button);
    button.addEventListener("click", () => view.set(control.sets));
    return button;
  }
  let input;
  if (control.range) {
    const [min, max, step] = control.range;
    input = el("input", {type: "range", min, max, step, id});
    input.addEventListener("input", () => set(Number(input.value)));
    const mark = el("span", {class: "mark", "aria-hidden": "true"});
    const value = el("output", {for: id});
    // What a drawing says of it: {text: its value in words, mark: a value to be marked}; nothing: not of use now.
    input.show = (shown) => {
      input.disabled = mark.hidden = !shown;
      value.textContent = shown?.text ?? "";
      input.setAttribute("aria-valuetext", value.textContent);
      mark.style.setProperty("--at", ((shown?.mark ?? min) - min) / (max - min));
    };
    view.inputs[control.id] = input;
    return el("div", {class: "range"}, el("label", {for: id}, control.label), el("div", {class: "track"}, input, mark), value);
  }
  if (control.number) {
    const [low, high] = control.number;
    input = el("input", {type: "number", min: low, max: high, step: 1, inputmode: "numeric", id});
    input.addEventListener("change", () => set(Math.min(high, Math.max(low, Math.round(Number(input.value) || 0)))));
  } else {
    const groups = new Map();
    for (const {value, text, group = ""} of control.options) {
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(el("option", {value}, text));
    }
    input = el("select", {id}, ...[...groups].flatMap(([group, options]) => (group ? [el("optgroup", {label: group}, ...options)] : options)));
    input.addEventListener("change", () => set(input.value));
  }
  view.inputs[control.id] = input;
  return el("label", {for: id}, control.label, input);
}

function fullLayout(layout) {
  const colors = theme();
  const axis = {gridcolor: colors.line, linecolor: colors.line, zerolinecolor: colors.line, zeroline: false, automargin: true, tickfont: {color: colors.soft}, ticks: ""};
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {family: getComputedStyle(document.body).fontFamily, size: 12.5, color: colors.ink},
    margin: {l: 48, r: 12, t: 14, b: 46}, legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom"}, dragmode: false, hovermode: "closest",
    hoverlabel: {bgcolor: colors.card, bordercolor: colors.soft, font: {color: colors.ink}, align: "left"},
    ...layout, xaxis: {...axis, ...layout.xaxis}, yaxis: {...axis, ...layout.yaxis}, ...(layout.yaxis2 ? {yaxis2: {...axis, ...layout.yaxis2}} : {}),
  };
}

// One section of the page.
class View {
  constructor(report, picture) {
    Object.assign(this, {report, picture, inputs: {}, state: {}});
    this.plot = el("div", {class: "plot", role: "img"});
    this.sentence = el("p", {class: "sentence", "aria-live": "polite"});
    this.seen = el("p", {class: "bears"});
    this.about = el("details");
    this.table = tableDetails(!window.Plotly);
    const controls = picture.controls(report);
    for (const control of controls) if (control.options) this.state[control.id] = control.options[0]?.value;
    Object.assign(this.state, picture.start?.(report));
    const title = `${picture.id}-title`;
    this.element = el("section", {class: "picture", id: picture.id, "aria-labelledby": title},
      el("div", {}, el("h2", {id: title}, picture.title), this.sentence, claimLinks(picture, report), this.seen,
        el("div", {class: "controls"}, ...controls.map((control) => controlElement(this, control))), this.about),
      this.plot, this.table.details);
  }

  set(change) {
    Object.assign(this.state, change);
    return this.draw();
  }

  async draw() {
    const {picture, report, state} = this;
    const width = this.plot.clientWidth || 600;
    const drawn = picture.draw(report, state, width);
    for (const [id, input] of Object.entries(this.inputs)) {
      input.value = state[id] ?? "";
      input.show?.(drawn.ranges?.[id]);
    }
    this.sentence.textContent = drawn.missing ? `Left out: ${drawn.missing}` : drawn.sentence;
    this.seen.replaceChildren(...(drawn.links ? ["Seen in ", ...linkList(drawn.links), "."] : []));
    this.about.replaceChildren(...definitions(picture.keys(state, report), picture.about, typeof picture.terms === "function" ? picture.terms(state) : picture.terms));
    this.table.fill(drawn.missing ? null : drawn.table);
    const hide = Boolean(drawn.missing) || !window.Plotly;
    this.plot.hidden = hide;
    if (hide) return;
    this.plot.setAttribute("aria-label", `${drawn.label}. ${drawn.sentence} The table below holds the values.`);
    this.plot.style.height = `${drawn.height}px`;
    this.ticks = drawn.ticks;
    await Plotly.react(this.plot, drawn.traces, {...fullLayout(drawn.layout), height: drawn.height}, {displayModeBar: false, responsive: true, displaylogo: false});
    if (!this.listening) this.listen();
  }

  listen() {
    this.listening = true;
    this.plot.on("plotly_relayout", (change) => {
      if (!this.ticks || !Object.keys(change).some((key) => /axis\.(range|autorange)/.test(key))) return;
      const {xaxis, yaxis} = this.plot.layout;
      const ticks = this.ticks(xaxis.range, yaxis.range);
      const flat = Object.entries(ticks).flatMap(([axis, values]) => Object.entries(values).map(([key, value]) => [`${axis}.${key}`, value]));
      Plotly.relayout(this.plot, Object.fromEntries(flat));
    });
    if (this.picture === kOverview) {
      this.plot.on("plotly_click", ({points: [point]}) => views.find((view) => view.picture === kMap).set({layer: String(point.x), head: String(point.y)}));
    }
  }
}

// Any JSON value as text for the list of facts.
function factText(value) {
  if (Array.isArray(value)) return value.map(factText).join(", ");
  if (value !== null && typeof value === "object") return Object.entries(value).map(([key, inner]) => `${key} ${factText(inner)}`).join(", ");
  return typeof value === "number" ? (Number.isInteger(value) && Math.abs(value) < 1e15 ? value.toLocaleString("en") : formatNumber(value)) : String(value);
}

function factList(title, facts) {
  const known = Object.entries(facts ?? {}).filter(([, value]) => value !== null && value !== "");
  if (!known.length) return [];
  return [el("h3", {}, title), el("dl", {}, ...known.flatMap(([key, value]) => [el("dt", {}, key.replaceAll("_", " ")), el("dd", {}, factText(value))]))];
}

function everything(report) {
  const entries = [];
  const add = (layer, head, key, value) => { if (value) entries.push({place: [layer, head, key], ...value}); };
  report.layerIds.forEach((id, layer) => {
    for (const key of report.layerKeys) add(id, null, key, report.layerValue(layer, key));
  });
  for (const {layer, head} of report.pairs) {
    for (const key of report.keys) add(report.layerIds[layer], report.headIds[head], key, report.value(layer, head, key));
  }
  const interval = intervalColumns(entries);
  const rows = entries.map((e) => [...e.place, e.mean, e.median, ...interval.cells(e)]);
  return {name: "all-figures", columns: ["layer", "head", "measure", "mean", "median", ...interval.names], rows, note: interval.note, most: 3000};
}

function fillHead(page, report) {
  const {results} = report;
  const object = (value) => (value !== null && typeof value === "object" ? value : {});
  document.getElementById("subtitle").textContent = page.subtitle(report);
  document.getElementById("facts").append(...factList("Model", object(results.model)), ...factList("Settings", object(results.settings)),
    ...factList("Run", {command: results.command, version: results.version, schema: results.schema}));
  const lines = page.summary(report);
  document.getElementById("summary").append(...(lines.length ? lines : [page.empty]).map((line) => el("li", {}, line)));
}

function fillFigures({figures: {title, open, table: tableOf, sentence, keys, terms}}, report) {
  const table = tableDetails(false);
  table.details.firstChild.textContent = open;
  const figures = tableOf(report);
  table.fill(figures);
  const about = el("details", {}, el("summary", {}, "All definitions"), ...definitions(keys(report), "", terms?.(report)).slice(2));
  return el("section", {class: "picture", id: "figures", "aria-labelledby": "figures-title"},
    el("div", {}, el("h2", {id: "figures-title"}, title), el("p", {class: "sentence"}, sentence(figures)), about), table.details);
}

// A table that stands open: what a page has before all else.
function firstSection({first}, report) {
  const found = first?.(report);
  if (!found) return [];
  const table = tableDetails(true);
  table.details.firstChild.textContent = found.open;
  table.fill(found.table);
  return [el("section", {class: "picture first", id: found.id, "aria-labelledby": "first-title"},
    el("div", {}, el("h2", {id: "first-title"}, found.title), el("p", {class: "sentence"}, found.sentence)), table.details)];
}

// Lists in place of a picture.
function limitsSection(page, report) {
  const {general, notes = []} = page.limits(report);
  const list = (lines, kind) => el("ul", {class: kind}, ...lines.map((line) => el("li", {}, line)));
  return el("section", {class: "picture", id: kLimits.id, "aria-labelledby": "limits-title"},
    el("div", {}, el("h2", {id: "limits-title"}, kLimits.title), el("p", {class: "sentence"}, "Read all that is said above with these in mind.")), list(general, "limits"),
    ...(notes.length ? [el("div", {class: "behind"}, el("h3", {}, "Claim by claim"), list(notes, "limits notes"))] : []));
}

// The pictures of a page; one that says when it is `shown` is left out elsewhere.
const sectionsOf = (page, report) => page.sections(report).filter(({shown}) => !shown || shown(report));

const kAnalysisPage = {
  unit: "window",
  limits: analysisLimits,
  sections: () => [kOverview, kMass, kMap, kDistributions, kRank, kSpectra, kLayers],
  subtitle(report) {
    const plural = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
    const windows = Array.isArray(report.results.windows) ? report.results.windows : [];
    return `${plural(report.layers.length, "layer")}, ${plural(report.pairs.length, "head")}` +
      (windows.length ? ` · ${plural(windows.length, "window")} of up to ${Math.max(...windows)} tokens` : "");
  },
  summary: summarySentences,
  empty: "These results hold no measured heads.",
  figures: {
    title: "All figures", open: "All figures, one line a layer, head and measure", table: everything,
    sentence: (table) => `${table.rows.length} measured values.`, keys: (report) => [...report.layerKeys, ...report.keys],
  },
};

let views = [];
const drawAll = () => Promise.all(views.map((view) => view.draw().catch(note)));
const checkOverflow = () => { root.dataset.overflow = root.scrollWidth > root.clientWidth ? "yes" : "no"; };

async function start() {
  root.dataset.errors = "";
  const warn = (text) => document.getElementById("notes").append(el("p", {class: "note", role: "alert"}, text));
  if (!window.DecompressionStream) {
    warn("This browser cannot unpack the data of this page (it has no DecompressionStream). Any browser since 2023 can. The figures are in results.json.");
    throw new Error("no DecompressionStream");
  }
  const library = await inflate("plotly");
  if (library) document.head.append(el("script", {}, library));
  if (!window.Plotly) {
    warn("The pictures are missing, since plotly.min.js was not found when this page was written; the tables are complete. To get them, put plotly.min.js " +
      "(from the PyPI package plotly, folder plotly/package_data) into share/unchain beside the program, or name its folder in UNCHAIN_SHARE, and run the analysis again.");
  }
  const report = new Report(JSON.parse(await inflate("data")));
  const page = {needle: kNeedlePage, study: kStudyPage, compare: kComparePage}[report.results.command] ?? kAnalysisPage;
  intervalUnit = page.unit;
  fillHead(page, report);
  const sections = sectionsOf(page, report);
  views = sections.map((picture) => new View(report, picture));
  document.getElementById("content").append(...views.map((view) => view.element), limitsSection(page, report), fillFigures(page, report));
  document.getElementById("notes").after(...firstSection(page, report));
  document.getElementById("contents").append(...[...sections, kLimits, {id: "figures", title: page.figures.title}].map(({id, title}) => el("li", {}, el("a", {href: `#${id}`}, title))));
  setUpTheme(drawAll);
  await drawAll();
  let timer = 0;
  let width = innerWidth;
  addEventListener("resize", () => {
    checkOverflow();
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (width !== innerWidth) drawAll().then(checkOverflow);
      width = innerWidth;
    }, 150);
  });
  checkOverflow();
  document.getElementById(location.hash.slice(1))?.scrollIntoView();  // it was not there when the page opened
  root.dataset.pictures = views.filter((view) => !view.plot.hidden).length;
}

start().catch(note).finally(() => { root.dataset.ready = "yes"; });
