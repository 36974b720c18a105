"use strict";
// The pictures of a study that show one number a run. Claims and their verdicts are in study_claims.js; what is pooled
// over seeds, by rank, layer or step, in study_curves.js and study_layers.js; the page they make up in study_page.js. A
// picture of a study has besides (figures.js): `claims`, the numbers of those it bears on, and `terms`, [word, what it
// means].

const studyRuns = (report) => listOf(report.results.runs).filter((run) => run && !run.pilot && !run.failed && typeof run.member === "string");
const studyClaims = (report) => listOf(report.results.claims).filter((claim) => claim && Array.isArray(claim.parts) && claim.parts.every((part) => part && typeof part === "object"));
const distinct = (values) => [...new Set(values)];
const membersOf = (runs) => distinct(runs.map((run) => run.member));
const groupOf = (run) => `${run.track}, ${run.size}`;
// Members in the order of the runs, a colour and a dash each.
function memberStyle(report, member) {
  const members = membersOf(studyRuns(report));
  const place = Math.max(0, members.indexOf(member));
  const {series} = theme();
  return {color: series[place % series.length], dash: ["solid", "dash", "dot", "dashdot"][Math.floor(place / series.length) % 4]};
}

// What can be chosen: track and size, and member, of the runs that have something to show.
const optionsOf = (values) => distinct(values).map((value) => ({value, text: value}));
const groupControl = (report, has = () => true) => ({id: "group", label: "Models", options: optionsOf(studyRuns(report).filter(has).map(groupOf))});

// The member that the first claim is of comes first.
function memberOptions(report, has) {
  const judged = studyClaims(report)[0]?.parts[0]?.of;
  const members = membersOf(studyRuns(report).filter(has));
  return optionsOf([...members.filter((member) => member === judged), ...members]);
}

const runsOf = (report, group) => studyRuns(report).filter((run) => groupOf(run) === group);

// The mean over runs of a number that they have, with the least and the most of them.
function overSeeds(runs, value) {
  const known = runs.map(value).filter(Number.isFinite);
  return {mean: mean(known), low: known.length ? Math.min(...known) : null, high: known.length ? Math.max(...known) : null, seeds: known.length};
}

const kSeedColumns = ["mean", "least", "most", "seeds"];
const seedCells = (point) => [point.mean, point.low, point.high, point.seeds];

function seedsText(point, unit = "number") {
  const text = formatValue(point.mean, unit);
  return point.seeds > 1 ? `${text} (${formatValue(point.low, unit)} to ${formatValue(point.high, unit)} over ${point.seeds} seeds)` : text;
}

// How far a line's points stand beside their place, so that the bars of several can be told apart.
const besides = (line, lines) => 0.3 * ((line + 0.5) / lines - 0.5);

// A line through the means, with what the seeds span: bars, or a band where points stand close. `place(i)` names a point.
function seedLine({x, points, name, color, dash = "solid", width = 2, unit, place, spread = true, ...extra}) {
  const close = x.length > 12;
  const several = spread && points.some(({seeds}) => seeds > 1);
  const known = points.flatMap(({mean: middle, low, high}, i) => (middle === null ? [] : [{x: x[i], low, high}]));
  const band = {
    type: "scatter", mode: "lines", x: [...known, ...known.toReversed()].map((point) => point.x), y: [...known.map(({high}) => high), ...[...known].reverse().map(({low}) => low)],
    fill: "toself", fillcolor: faded(color, 0.15), line: {width: 0}, hoverinfo: "skip", showlegend: false, ...extra,
  };
  const bars = {type: "data", symmetric: false, array: points.map((p) => p.high - p.mean), arrayminus: points.map((p) => p.mean - p.low), color, thickness: 1.2, width: 3};
  return [...(several && close ? [band] : []), {
    type: "scatter", mode: close ? "lines" : "lines+markers", x, y: points.map((point) => point.mean), name, line: {color, dash, width}, marker: {color, size: 5},
    ...(several && !close ? {error_y: bars} : {}), text: points.map((point, i) => `${plotText(name)}<br>${place(i)}<br>${seedsText(point, unit)}`), hovertemplate: "%{text}<extra></extra>", ...extra,
  }];
}

// Room for a legend of these names above a picture of this height.
function withLegend(height, width, names) {
  const columns = Math.max(1, Math.floor(0.8 * width / (50 + 7 * Math.max(...names.map((name) => name.length)))));
  return height + 20 * Math.ceil(names.length / columns);
}

const runMeasures = (report) => distinct(studyRuns(report).flatMap((run) => Object.keys(run.measures ?? {}).filter((key) => Number.isFinite(run.measures[key]?.value)))).sort();

// One value a run, by member, as dots, with the mean of the seeds.
function byMember(report, runs, value, title, width) {
  const members = membersOf(runs);
  const known = runs.filter((run) => Number.isFinite(value(run)));
  const colors = theme();
  const means = members.map((member) => mean(known.filter((run) => run.member === member).map(value)));
  return {
    traces: [
      {
        type: "scatter", mode: "markers", x: known.map((run) => members.indexOf(run.member)), y: known.map(value), name: "one run", marker: {size: 7, color: faded(colors.series[0], 0.55)},
        text: known.map((run) => `${run.member}, seed ${run.seed}<br>${formatNumber(value(run), 1)}`), hovertemplate: "%{text}<extra></extra>",
      },
      {
        type: "scatter", mode: "markers", x: indices(members.length), y: means, name: "mean of seeds", marker: {symbol: "line-ew", size: 22, line: {width: 2.5, color: colors.ink}},
        text: members.map((member, i) => `${member}, mean of seeds<br>${formatNumber(means[i], 1)}`), hovertemplate: "%{text}<extra></extra>",
      },
    ],
    layout: {
      xaxis: {range: [-0.6, members.length - 0.4], tickmode: "array", tickvals: indices(members.length), ticktext: members, tickangle: width < 700 ? -60 : 0, showgrid: false},
      yaxis: {title: {text: title}},
    },
    height: width < 700 ? 430 : 380,
    members, means, known,
  };
}

function memberSentence(name, {members, means}) {
  const order = indices(members.length).filter((i) => means[i] !== null).sort((a, b) => means[a] - means[b]);
  if (order.length < 2) return "";
  const [least, most] = [order[0], order.at(-1)];
  if (isSame(means[least], means[most])) return `${name}: ${formatNumber(means[least], 1)} for all members, means of seeds.`;
  return `${name}: from ${formatNumber(means[least], 1)} (${members[least]}) to ${formatNumber(means[most], 1)} (${members[most]}), means of seeds.`;
}

// What a measure of the study is, from the table of docs/claims.md. A row that says "the same" is shown with the one it means.
function measureTerms(name) {
  const text = document.getElementById("claims-page").textContent;
  const rows = [...text.matchAll(/^\| `(\w+)` \| (.*?) \| (.*) \| [\d, –]+ \|$/gm)].map(([, key, unit, what]) => ({key, unit, what: what.replaceAll("\\|", "|").replaceAll("`", "")}));
  const at = rows.findIndex(({key}) => key === name);
  const full = rows.slice(0, at + 1).filter(({what}, i) => i === at || !what.startsWith("the same"));
  const shown = at < 0 ? [] : full.slice(rows[at].what.startsWith("the same") ? -2 : -1);
  return shown.map(({key, unit, what}) => [key.replaceAll("_", " "), `${what}. Unit: ${unit}.`]);
}

const kStudyMeasures = {
  id: "measures",
  title: "Any measure, member by member",
  about: "A dot is one trained model, the stroke the mean over seeds. Measures that do not apply to a member, as those of a noise map to softmax, are left out.",
  terms: ({measure}) => measureTerms(String(measure)),
  keys: () => [],
  controls: (report) => [groupControl(report), {id: "measure", label: "Measure", options: runMeasures(report).map((value) => ({value, text: value.replaceAll("_", " ")}))}],
  start: (report) => ({measure: runMeasures(report).includes("loss_nats") ? "loss_nats" : runMeasures(report)[0]}),
  draw(report, state, width) {
    const runs = runsOf(report, state.group);
    const name = String(state.measure).replaceAll("_", " ");
    const value = (run) => run.measures?.[state.measure]?.value;
    const {known, ...drawn} = byMember(report, runs, value, name, width);
    if (!known.length) return {missing: "no run has this measure."};
    return {
      ...drawn, sentence: memberSentence(name, drawn), label: `${name} by member`,
      table: {name: String(state.measure), columns: ["track", "size", "member", "seed", state.measure], rows: known.map((run) => [run.track, run.size, run.member, run.seed, value(run)])},
    };
  },
};

const kStudyNeedles = {
  id: "needles",
  claims: [4, 9, 10, 13, 16],
  title: "Needles found, member by member",
  about: "Questions answered right, of the rung of difficulty that the pilot runs chose. The dotted line is chance: one of the numbers in the prompt at random.",
  keys: () => ["accuracy"],
  controls: (report) => [groupControl(report, (run) => Number.isFinite(run.needle?.[0]?.accuracy))],
  draw(report, state, width) {
    const runs = runsOf(report, state.group);
    const {known, ...drawn} = byMember(report, runs, (run) => run.needle?.[0]?.accuracy, "Share answered right", width);
    if (!known.length) return {missing: "no run was asked for needles."};
    const chance = known[0].needle[0].chance;
    const line = {type: "scatter", mode: "lines", x: [-0.6, drawn.members.length - 0.4], y: [chance, chance], name: "chance", line: {dash: "dot", color: theme().soft}, hoverinfo: "skip"};
    return {
      ...drawn, traces: [...drawn.traces, line], layout: {...drawn.layout, yaxis: {...drawn.layout.yaxis, range: [0, 1.02], tickformat: ".0%"}},
      sentence: `${memberSentence("Share of needles found", drawn)} Chance is ${formatShare(chance)}.`, label: "Needles found by member",
      table: {
        name: "needles", columns: ["track", "size", "member", "seed", "asked", "right", "accuracy", "low", "high", "chance", "parameters", "tokens_per_s"],
        rows: known.map((run) => [run.track, run.size, run.member, run.seed, ...["asked", "right", "accuracy", "low", "high", "chance"].map((key) => run.needle[0][key] ?? null), finiteOrNull(run.parameters), finiteOrNull(run.tokens_per_s)]),
      },
    };
  },
};
