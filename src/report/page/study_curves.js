"use strict";
// The pictures of a study along one number: training, the rank of a map, the scale of λ. Each point is pooled over seeds.

const kLosses = {text_loss_nats: "text", answer_loss_nats: "answers"};

// A number of the training curves at each point that all of these runs have: [{tokens, mean, low, high, seeds}].
function trainingCurve(runs, value) {
  const curves = runs.map((run) => new Map(listOf(run.curve).filter((point) => Number.isFinite(point && value(point))).map((point) => [point.tokens, value(point)]))).filter(({size}) => size);
  const common = [...(curves[0]?.keys() ?? [])].filter((tokens) => curves.every((curve) => curve.has(tokens)));
  return common.map((tokens) => ({tokens, ...overSeeds(curves, (curve) => curve.get(tokens))}));
}

const hasPoint = (value) => (run) => listOf(run.curve).some((point) => Number.isFinite(point && value(point)));

// A picture of such curves: [{name, points, color, dash}] by tokens, with bands where they are few.
function trainingLines(lines, width, {title, unit, table, columns}) {
  return {
    traces: lines.flatMap(({name, points, color, dash}) => seedLine({
      x: points.map(({tokens}) => tokens), points, name, color, dash, unit, spread: lines.length <= 6, place: (i) => `${points[i].tokens.toLocaleString("en")} tokens`,
    })),
    layout: {showlegend: true, xaxis: {title: {text: "Tokens"}}, yaxis: {title: {text: title}}},
    height: withLegend(380, width, lines.map(({name}) => name)),
    table: {name: table, columns: [...columns, "tokens", ...kSeedColumns], rows: lines.flatMap(({cells, points}) => points.map((point) => [...cells, point.tokens, ...seedCells(point)]))},
  };
}

// A fall is not absent because noise hides it: a loss is flat where even twice the error leaves no change that counts.
const kFlatNats = 0.02;
function endingState({slope_nats: slope, error_nats: error} = {}) {
  if (!Number.isFinite(slope) || !Number.isFinite(error)) return "unknown";
  if (Math.abs(slope) + 2 * error < kFlatNats) return "flat";
  return Math.abs(slope) > 2 * error ? "moving" : "noisy";
}
function endingOf(runs) {
  const count = (state) => runs.filter((run) => endingState(run.ending ?? undefined) === state).length;
  return {moving: count("moving"), flat: count("flat"), noisy: count("noisy"), unknown: count("unknown")};
}

// Which members' losses had not come to rest, and of which that cannot be told.
function endingSentence(runs) {
  const {moving, flat, noisy, unknown} = endingOf(runs);
  const said = [];
  if (moving) {
    const members = membersOf(runs).map((member) => [member, runs.filter((run) => run.member === member)]).filter(([, own]) => endingOf(own).moving);
    said.push(`still moving: ${members.map(([member, own]) => `${member} (${endingOf(own).moving} of ${own.length})`).join(", ")}`);
  }
  if (flat) said.push(`flat: ${countText(flat, "run")}`);
  if (noisy) {
    const unseen = 2 * median(runs.map((run) => run.ending?.error_nats).filter(Number.isFinite));
    said.push(`too noisy to tell: ${countText(noisy, "run")}, in which a change of ${formatNumber(unseen, 2)} nats would go unseen`);
  }
  if (unknown) said.push(`unknown: ${countText(unknown, "run")} with too few steps`);
  return said.length ? ` Over the last tenth of the steps ${said.join("; ")}.` : "";
}

const kStudyCurves = {
  id: "curves",
  title: "Loss on the way",
  about: "Training loss in nats a token, each point the mean over a stretch of steps and over the seeds; a band, where there are at most six lines, is what the seeds span. Where curves are not shown to be flat at the end, the figures of this study are those of models in the middle of their training.",
  terms: [["Flat", "Of a line through the losses of the last tenth of the steps the slope and twice its error together are below 0.02 nats a tenth of the run; moving: the slope is more than twice its error; too noisy to tell: neither (docs/analyses/dynamics.md). The schedule of the learning rate ends at a small rate, which flattens any curve."]],
  claims: [11, 14, 15, 19],
  keys: () => [],
  controls: (report) => [groupControl(report), {id: "key", label: "Loss on", options: Object.entries(kLosses).map(([value, text]) => ({value, text}))}],
  draw(report, state, width) {
    const runs = runsOf(report, state.group);
    const lines = membersOf(runs).map((member) => {
      const own = runs.filter((run) => run.member === member);
      return {name: endingOf(own).moving ? `${member}, still moving` : member, cells: [member], points: trainingCurve(own, (point) => point[state.key]), ...memberStyle(report, member)};
    }).filter(({points}) => points.length > 0);
    if (!lines.length) return {missing: `these runs have no loss on ${kLosses[state.key]}.`};
    const last = lines.map(({cells: [member], points}) => [member, points.at(-1).mean]).sort((a, b) => a[1] - b[1]);
    return {
      ...trainingLines(lines, width, {title: "Nats a token", unit: "nats", table: "curves", columns: ["member"]}),
      sentence: `At the end of training the loss on ${kLosses[state.key]} lies between ${formatNumber(last[0][1], 1)} nats (${last[0][0]}) and ${formatNumber(last.at(-1)[1], 1)} (${last.at(-1)[0]}).${endingSentence(runs)}`,
      label: "Training loss by tokens, a line a member",
    };
  },
};

const layerColor = (layer, count) => theme().sequential[Math.round(6 + 9 * layer / Math.max(1, count - 1))][1].replace(/rgb\((\d+),(\d+),(\d+)\)/, (_, ...parts) => `#${parts.slice(0, 3).map((part) => Number(part).toString(16).padStart(2, "0")).join("")}`);
const meanLambda = (point) => mean(listOf(point.lambda).filter(Number.isFinite));
const kNorms = "gradient norm";
const kLambdas = "mean lambda";

const kStudyDynamics = {
  id: "dynamics",
  title: "λ and the gradient on the way",
  about: "Each point is the mean over a stretch of steps and over the seeds; a band, where there are at most six lines, is what the seeds span. λ that stays where it began was not used; a gradient norm with peaks tells of unsteady training.",
  terms: [["λ", "The weight of the noise map, mean over the heads and tokens of a step, by layer (layers are counted from 0) or over all layers."], ["Gradient norm", "The norm of the gradient of all weights before clipping."]],
  claims: [11, 23],
  keys: () => [],
  controls: (report) => [groupControl(report, (run) => listOf(run.curve).length), {id: "show", label: "Show", options: [
    {value: kLambdas, text: "λ, mean of layers, by member"}, {value: kNorms, text: "Gradient norm, by member"}, ...memberOptions(report, hasPoint(meanLambda)).map(({value}) => ({value: `of ${value}`, text: `λ by layer of ${value}`})),
  ]}],
  start: (report) => (studyRuns(report).some(hasPoint(meanLambda)) ? {} : {show: kNorms}),
  draw(report, state, width) {
    const runs = runsOf(report, state.group);
    const member = /^of (.*)/.exec(state.show)?.[1];
    const norms = state.show === kNorms;
    const own = runs.filter((run) => run.member === member);
    const layers = indices(Math.max(0, ...own.flatMap((run) => listOf(run.curve).map((point) => listOf(point?.lambda).length))));
    const lines = (member === undefined
      ? membersOf(runs).map((name) => ({name, cells: [name, null], points: trainingCurve(runs.filter((run) => run.member === name), norms ? (point) => point.gradient_norm : meanLambda), ...memberStyle(report, name)}))
      : layers.map((layer) => ({name: `layer ${layer}`, cells: [member, layer], points: trainingCurve(own, (point) => point.lambda?.[layer]), color: layerColor(layer, layers.length)}))
    ).filter(({points}) => points.length > 0);
    const title = norms ? "Gradient norm" : "λ";
    if (!lines.length) return {missing: `these runs have no ${title} on the way.`};
    return {
      ...trainingLines(lines, width, {title, table: "dynamics", columns: ["member", "layer"]}),
      sentence: `${title}${member === undefined ? "" : ` of ${member}`} (${state.group}), first and last point: ${lines.slice(0, 6).map(({name, points}) => `${name} ${formatNumber(points[0].mean)} and ${formatNumber(points.at(-1).mean)}`).join(", ")}${lines.length > 6 ? "; the others are in the table" : ""}.`,
      label: `${title} by tokens of training, ${countText(lines.length, "line")}`,
    };
  },
};

const kFixedRows = 5;
const kRowsOfFixed = "fixed_diff's five rows";
const kTextsOwn = "each text's own";
const kOneForAll = "one for all texts";

// By how much the loss rises at each rank of a map, the whole map (rank null) last.
function rankRises(runs, key, fixed) {
  const entries = (run) => listOf(run.curves?.[key]).filter((entry) => entry && Boolean(entry.fixed) === fixed);
  const ranks = distinct(runs.flatMap((run) => entries(run).map(({rank}) => rank ?? null))).sort((a, b) => (a ?? Infinity) - (b ?? Infinity));
  const rise = (run, rank) => entries(run).find((entry) => (entry.rank ?? null) === rank)?.loss_nats - run.curves?.loss_nats;
  return ranks.map((rank) => ({rank, ...overSeeds(runs, (run) => rise(run, rank))})).filter(({seeds}) => seeds);
}

const rankText = (rank) => (rank === null ? "all" : String(rank));
const hasRanks = (key) => (run) => listOf(run.curves?.[key]).length > 0;

const kStudyRanks = {
  id: "rank-loss",
  title: "How many rows of noise",
  about: "Every map of one kind is replaced by a map of rank r, all layers at once, and the loss is compared with the model's own. A line that is flat from some r on needs no more than r numbers a token. If A1 of the same model, or softmax's map, is as flat, low rank is no property of the noise. Bars are what the seeds span. One window of each validation text; loss says nothing of retrieval.",
  terms: [
    ["Rank r", "The map is U Vᵀ, U and V with r columns, on what a row sees, and its rows are divided by their sum (at least 0.1). Rank 0 is no map at all; “all” is the whole map."],
    ["Each text's own", "U and V are fitted to the map of the very text that is scored, later tokens too: the least error that the rank allows, not an attention that could run. The loss may lie below the model's own."],
    ["fixed_diff's five rows", "The first token, the uniform row and three decays, mixed for each head so that they lie nearest to its mean map: noise that nothing was learned for but five shares a head. Shown where it was measured."],
    ["One for all texts", "U and V are fitted once to the mean map over windows of the training text: a map that does not look at the text (docs/analyses/functional-rank.md)."],
  ],
  claims: [1, 3, 18],
  keys: () => [],
  controls: (report) => [groupControl(report, hasRanks("rank_of_a1")), {id: "member", label: "Member", options: memberOptions(report, hasRanks("rank_of_a2"))},
    {id: "least", label: "From", options: [{value: "1", text: "rank 1"}, {value: "0", text: "rank 0, no map"}]}],
  draw(report, state, width) {
    const runs = runsOf(report, state.group);
    const colors = theme().series;
    const of = (member) => runs.filter((run) => run.member === member);
    const lines = [
      {name: "A2", member: state.member, key: "rank_of_a2", color: colors[0]}, {name: "A1", member: state.member, key: "rank_of_a1", color: colors[1]},
      {name: "softmax's map", member: "softmax", key: "rank_of_a1", color: colors[2]},
    ].flatMap((line) => [false, true].map((fixed) => ({...line, fixed, dash: fixed ? "dash" : "solid", all: rankRises(of(line.member), line.key, fixed)})))
      .map((line) => ({...line, shown: line.all.filter(({rank}) => rank === null || rank >= Number(state.least))})).filter(({shown}) => shown.length > 0);
    if (!lines.some(({key}) => key === "rank_of_a2")) return {missing: `no losses by rank of A2 for ${state.member ?? "any member"} in ${state.group ?? "these runs"}.`};
    // fixed_diff's own rows, as near to the mean map as they come: one point a map, at their number.
    const rows = lines.filter(({fixed}) => fixed).map((line) => ({...line, ...overSeeds(of(line.member), (run) => run.curves?.[line.key.replace("rank", "rows")] - run.curves?.loss_nats)})).filter(({seeds}) => seeds && lines.some(({shown}) => shown.some(({rank}) => rank === kFixedRows)));
    const ranks = distinct(lines.flatMap(({shown}) => shown.map(({rank}) => rank))).sort((a, b) => (a ?? Infinity) - (b ?? Infinity));
    const at = ranks.filter((rank) => rank !== null && rank <= 5).at(-1) ?? ranks[0];
    const cost = (name) => lines.filter((line) => line.name === name).flatMap(({fixed, shown}) => shown.filter(({rank}) => rank === at).map((point) => `${formatNumber(point.mean)} (${fixed ? kOneForAll : kTextsOwn})`)).join(" and ");
    const kinds = distinct(lines.map(({name}) => name));
    return {
      traces: [...lines.flatMap(({name, fixed, dash, color, shown}, line) => seedLine({
        x: shown.map(({rank}) => ranks.indexOf(rank) + besides(line, lines.length)), points: shown, name: `${name}, ${fixed ? kOneForAll : kTextsOwn}`, color, dash, unit: "nats", place: (i) => `rank ${rankText(shown[i].rank)}`,
      })), ...rows.flatMap((point) => seedLine({
        x: [ranks.indexOf(kFixedRows)], points: [point], name: `${point.name}, ${kRowsOfFixed}`, color: point.color, unit: "nats", place: () => "fixed_diff's rows", mode: "markers", marker: {symbol: "diamond", size: 10, color: point.color},
      }))],
      layout: {
        showlegend: true,
        xaxis: {title: {text: "Rank r of the map"}, tickmode: "array", tickvals: indices(ranks.length), ticktext: ranks.map(rankText), range: [-0.4, ranks.length - 0.6]},
        yaxis: {title: {text: "Loss above the model's own, nats"}, zeroline: true, zerolinecolor: theme().soft},
      },
      height: withLegend(380, width, [...lines, ...rows].map(({name}) => `${name}, ${kRowsOfFixed}`)),
      sentence: `With maps of rank ${rankText(at)} the loss of ${state.member} (${state.group}) rises by so many nats: ${kinds.map((name) => `${name} ${cost(name)}`).join("; ")}.${rows.length ? ` With fixed_diff's five rows: ${rows.map((point) => `${point.name} ${formatNumber(point.mean)}`).join("; ")}.` : ""}`,
      label: `Loss above the model's own by rank of the replaced map, ${countText(lines.length, "line")}`,
      table: {
        name: "rank-loss", columns: ["member", "map", "fitted to", "rank", ...kSeedColumns], note: "loss above the model's own, nats",
        rows: [
          ...lines.flatMap(({member, name, fixed, all}) => all.map((point) => [member, name, fixed ? kOneForAll : kTextsOwn, rankText(point.rank), ...seedCells(point)])),
          ...rows.map((point) => [point.member, point.name, kRowsOfFixed, String(kFixedRows), ...seedCells(point)]),
        ],
      },
    };
  },
};

// The loss along λ → m·λ less the model's own, pooled, and each run's lowest point; `pick` gives a run's curve.
function lambdaLine(runs, pick) {
  const own = runs.filter((run) => listOf(pick(run)?.m).length);
  const m = distinct(own.flatMap((run) => pick(run).m)).sort((a, b) => a - b);
  const points = m.map((at) => overSeeds(own, (run) => pick(run).loss_nats?.[pick(run).m.indexOf(at)] - run.curves.loss_nats));
  const least = own.map((run) => ({seed: run.seed, m: pick(run).best_m, rise: pick(run).best_loss_nats - run.curves.loss_nats})).filter(({m: at, rise}) => Number.isFinite(at) && Number.isFinite(rise));
  return {m, points, least};
}

const hasLambda = (run) => listOf(run.curves?.lambda?.m).length > 0;
const hasHeadCurves = (run) => listOf(run.curves?.lambda_by_layer).some((curve) => listOf(curve?.heads).length > 0);

const kStudyLambda = {
  id: "lambda",
  title: "λ against the optimum",
  about: "All λ, or those of one layer or head, are multiplied by m: m = 1 is the model, m = 0 the model without its noise term. Rings mark each run's lowest point. A minimum near m = 1 shows that training has converged in λ, not that taking noise off is good: that is judged by runs with λ held. Bars are what the seeds span. One window of each validation text.",
  terms: [["Loss along m", "Mean loss with λ → m·λ less the loss at m = 1, in nats a token; the minimum is looked for between 0 and 2 to 0.05 in m (docs/analyses/lambda.md). One at 0 or 2 may lie beyond."]],
  claims: [11],
  keys: () => [],
  controls: (report) => [groupControl(report, hasLambda), {id: "show", label: "Curves of", options: [
    ...memberOptions(report, hasLambda).map(({value}) => ({value: `of ${value}`, text: `${value} and its layers`})), {value: "members", text: "all members"},
    ...memberOptions(report, hasHeadCurves).map(({value}) => ({value: `heads of ${value}`, text: `${value} and its heads`}))]}],
  draw(report, state, width) {
    const runs = runsOf(report, state.group);
    const [, heads, member] = /^(heads )?of (.*)/.exec(state.show) ?? [];
    const own = runs.filter((run) => run.member === member);
    const layers = distinct(own.flatMap((run) => listOf(run.curves?.lambda_by_layer).map((curve) => curve?.layer))).filter(Number.isInteger).sort((a, b) => a - b);
    const whole = (run) => run.curves?.lambda;
    const ofLayer = (run, layer) => listOf(run.curves?.lambda_by_layer).find((curve) => curve?.layer === layer);
    const headsOf = (layer) => indices(Math.max(0, ...own.map((run) => listOf(ofLayer(run, layer)?.heads).length)));
    const lines = (member === undefined
      ? membersOf(runs).map((name) => ({name, cells: [name, null, null], ...lambdaLine(runs.filter((run) => run.member === name), whole), ...memberStyle(report, name)}))
      : [{name: "the model", cells: [member, null, null], ...lambdaLine(own, whole), color: theme().series[1], width: 3},
        ...layers.flatMap((layer, i) => heads
          ? headsOf(layer).map((head) => ({name: `layer ${layer}, head ${head}`, cells: [member, layer, head], ...lambdaLine(own, (run) => listOf(ofLayer(run, layer)?.heads)[head]), color: layerColor(i, layers.length)}))
          : {name: `layer ${layer}`, cells: [member, layer, null], ...lambdaLine(own, (run) => ofLayer(run, layer)), color: layerColor(i, layers.length)})]
    ).filter(({m}) => m.length);
    if (!lines.length) return {missing: `these runs have no losses along λ${member === undefined ? "" : ` of ${member}`}.`};
    const lowest = ({name, least}) => `${name} at m = ${least.map(({m}) => formatNumber(m)).join(", ")}`;
    return {
      traces: lines.flatMap(({name, m, points, least, color, dash, width: stroke}) => [
        ...seedLine({x: m, points, name, color, dash, width: stroke, unit: "nats", place: (i) => `m = ${formatNumber(m[i])}`}),
        {
          type: "scatter", mode: "markers", x: least.map((point) => point.m), y: least.map(({rise}) => rise), name: `${name}, lowest`, showlegend: false, marker: {symbol: "circle-open", size: 11, color, line: {width: 2}},
          text: least.map((point) => `${plotText(name)}, seed ${point.seed}<br>lowest at m = ${formatNumber(point.m)}<br>${formatValue(point.rise, "nats")}`), hovertemplate: "%{text}<extra></extra>",
        },
      ]),
      layout: {
        showlegend: true,
        xaxis: {title: {text: "m, where λ → m·λ"}}, yaxis: {title: {text: "Loss above the model's own, nats"}, zeroline: true, zerolinecolor: theme().soft},
        shapes: [{type: "line", xref: "x", yref: "paper", x0: 1, x1: 1, y0: 0, y1: 1, line: {color: theme().soft, width: 1, dash: "dot"}}],
      },
      height: withLegend(380, width, lines.map(({name}) => name)),
      sentence: `Lowest loss${member === undefined ? "" : ` of ${member}`} (${state.group}), run by run: ${lines.slice(0, 6).map(lowest).join("; ")}${lines.length > 6 ? "; the others are in the table" : ""}.`,
      label: `Loss above the model's own along the scale of λ, ${countText(lines.length, "line")}`,
      table: {
        name: "lambda", columns: ["member", "layer", "head", "point", "m", ...kSeedColumns], note: "loss above the model's own, nats; without a layer: the whole model; without a head: all of the layer",
        rows: lines.flatMap(({cells, m, points, least}) => [...points.map((point, i) => [...cells, "grid", m[i], ...seedCells(point)]), ...least.map((point) => [...cells, `lowest, seed ${point.seed}`, point.m, point.rise, null, null, 1])]),
      },
    };
  },
};
