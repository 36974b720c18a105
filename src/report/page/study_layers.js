"use strict";
// The pictures of a study by layer, by depth of the needle, and of the Hessian. Each point is pooled over seeds.

// A number by layer, pooled over runs: one entry a layer that any of the runs has.
const layerPoints = (runs, key) => indices(Math.max(0, ...runs.map((run) => listOf(run.layers?.[key]).length))).map((layer) => overSeeds(runs, (run) => run.layers?.[key]?.[layer]));
const hasLayers = (key) => (run) => listOf(run.layers?.[key]).some(Number.isFinite);
const layersAxis = (count) => ({title: {text: "Layer"}, tickmode: "linear", dtick: 1, range: [-0.4, Math.max(1, count) - 0.6]});
const layerLines = (lines, unit) => lines.flatMap(({points, ...line}, l) => seedLine({x: indices(points.length).map((i) => i + besides(l, lines.length)), points, unit, place: (i) => `layer ${i}`, ...line}));
const meansText = (points, unit) => points.map((point) => formatValue(point.mean, unit)).join(", ");

const kRankBand = [2, 5];  // of claims 1 and 2

const kStudyLayerRanks = {
  id: "layer-ranks",
  title: "Effective rank by layer",
  about: "How many directions the maps of a layer have, beside the band of 2 to 5 that is claimed for A2. A rank is small only against something: if A1 or softmax's map lies in the band too, low rank is no property of the noise. It grows with the number of tokens, and all are measured at the same. Bars are what the seeds span.",
  terms: [["Effective rank", "exp(−Σ p ln p) with p = σ/Σσ over the singular values σ of a block of the map: 64 rows of the last quarter, columns of the first three. Median over the heads of the layer and over windows. A map of lowrank_diff has at most 4 by construction."]],
  claims: [1, 2],
  keys: () => [],
  controls: (report) => [groupControl(report, hasLayers("a1_rank")), {id: "show", label: "Maps", options: [
    ...memberOptions(report, hasLayers("a2_rank")).map(({value}) => ({value: `of ${value}`, text: `A1 and A2 of ${value}, softmax's`})), {value: "a2_rank", text: "A2 of all members"}, {value: "a1_rank", text: "A1 of all members"}]}],
  draw(report, state, width) {
    const runs = runsOf(report, state.group);
    const colors = theme().series;
    const member = /^of (.*)/.exec(state.show)?.[1];
    const all = member === undefined
      ? membersOf(runs).map((name) => ({name, member: name, key: state.show, ...memberStyle(report, name)}))
      : [{name: "A2", member, key: "a2_rank", color: colors[0]}, {name: "A1", member, key: "a1_rank", color: colors[1]}, {name: "softmax's map", member: "softmax", key: "a1_rank", color: colors[2]}];
    const lines = all.map((line) => ({...line, points: layerPoints(runs.filter((run) => run.member === line.member), line.key)})).filter(({points}) => points.some(({seeds}) => seeds));
    if (!lines.length) return {missing: `these runs have no ranks by layer${member === undefined ? "" : ` of ${member}`}.`};
    const [low, high] = kRankBand;
    const inside = ({name, points}) => {
      const known = points.filter(({seeds}) => seeds);
      return `${name} in ${known.filter((point) => point.mean >= low && point.mean <= high).length} of ${known.length} (${meansText(known)})`;
    };
    return {
      traces: layerLines(lines.map(({member: _, key, ...line}) => line)),
      layout: {
        showlegend: true,
        xaxis: layersAxis(Math.max(...lines.map(({points}) => points.length))), yaxis: {title: {text: "Effective rank, directions"}, rangemode: "tozero"},
        shapes: [{type: "rect", xref: "paper", x0: 0, x1: 1, y0: low, y1: high, fillcolor: faded(colors[3], 0.18), line: {width: 0}, layer: "below"}],
        annotations: [{xref: "paper", x: 1, xanchor: "right", y: high, yanchor: "bottom", text: "claimed: 2 to 5", showarrow: false, font: {color: theme().soft, size: 11}}],
      },
      height: withLegend(360, width, lines.map(({name}) => name)),
      sentence: `Layers whose rank lies in the band of ${low} to ${high}${member === undefined ? "" : `, ${member}`} (${state.group}): ${lines.slice(0, 6).map(inside).join("; ")}${lines.length > 6 ? "; the others are in the table" : ""}.`,
      label: `Effective rank by layer, ${countText(lines.length, "line")}, with the claimed band`,
      table: {name: "layer-ranks", columns: ["member", "map", "layer", ...kSeedColumns], rows: lines.flatMap(({member: of, key, points}) => points.map((point, layer) => [of, key === "a2_rank" ? "A2" : "A1", layer, ...seedCells(point)]))},
    };
  },
};

const kStudyProfile = {
  id: "profile",
  title: "Where the noise term is worth most",
  about: "Above, what the loss gains from the noise term of one layer; below, how much a task that needs attention depends on that layer in the softmax models trained beside it. If the layers that the task needs gain most, the two rise and fall together; with few layers they may do so by chance. The scales differ. Bars are what the seeds span.",
  terms: [
    ["Gain", "Rise of the loss, nats a token, when λ = 0 in this layer alone and the head norm is kept. It shows what the trained model relies on, not what it would lose if it were trained without."],
    ["Sensitivity", "Rise of the loss on induction targets (the next token has followed the same token before) when the attention of this layer is silenced (docs/analyses/layer-gain.md)."],
  ],
  claims: [12],
  keys: () => [],
  controls: (report) => [groupControl(report, hasLayers("gain_nats")), {id: "member", label: "Gain of", options: [...memberOptions(report, hasLayers("gain_nats")), {value: "", text: "all members"}]}],
  draw(report, state, width) {
    const runs = runsOf(report, state.group);
    const line = (name, key, style, yaxis) => ({name, key, yaxis, points: layerPoints(runs.filter((run) => run.member === name), key), ...style});
    const gains = membersOf(runs).filter((name) => !state.member || name === state.member).map((name) => line(name, "gain_nats", memberStyle(report, name), "y")).filter(({points}) => points.some(({seeds}) => seeds));
    if (!gains.length) return {missing: `these runs have no gain by layer${state.member ? ` of ${state.member}` : ""}.`};
    const twin = [line("softmax", "sensitivity_nats", memberStyle(report, "softmax"), "y2")].filter(({points}) => points.some(({seeds}) => seeds));
    const most = ({points}) => indices(points.length).filter((i) => points[i].seeds).sort((a, b) => points[b].mean - points[a].mean)[0];
    const say = (each, what) => `${each.name} ${what} most in layer ${most(each)}, ${seedsText(each.points[most(each)], "nats")}`;
    const lines = [...gains, ...twin];
    const zero = {rangemode: "tozero", zeroline: true, zerolinecolor: theme().soft};
    return {
      traces: layerLines(lines.map(({key, ...each}) => ({...each, name: key === "gain_nats" ? `${each.name}, gain` : `${each.name}, sensitivity`})), "nats"),
      layout: {
        showlegend: true,
        xaxis: {...layersAxis(Math.max(...lines.map(({points}) => points.length))), anchor: twin.length ? "y2" : "y"},
        yaxis: {title: {text: "Gain, nats"}, domain: twin.length ? [0.54, 1] : [0, 1], ...zero}, ...(twin.length ? {yaxis2: {title: {text: "Sensitivity, nats"}, domain: [0, 0.46], ...zero}} : {}),
      },
      height: withLegend(twin.length ? 460 : 340, width, lines.map(({name}) => `${name}, sensitivity`)),
      sentence: `${gains.slice(0, 4).map((each) => say(each, "gains")).join("; ")}${twin.length ? `; for the task ${say(twin[0], "needs attention")}` : "; no softmax model was measured beside them"}.`,
      label: `Gain of the noise term by layer, ${countText(gains.length, "member")}, above the sensitivity of softmax`,
      table: {name: "profile", columns: ["member", "figure", "layer", ...kSeedColumns], note: "nats a token", rows: lines.flatMap(({name, key, points}) => points.map((point, layer) => [name, key.replace("_nats", ""), layer, ...seedCells(point)]))},
    };
  },
};

const needleOf = (run) => listOf(run.needle).at(-1);

// What can be shown by layer of a noise term: lines of a run's lists, in a unit.
const kTermLines = {
  "λ and its projection": {unit: "number", axis: "λ", lines: [
    {name: "λ", dash: "solid", of: (run) => run.layers?.lambda}, {name: "projection of A1 on A2", dash: "dash", of: (run) => run.layers?.lambda_projected}]},
  "loss without it": {unit: "nats", axis: "Rise of the loss, nats", lines: [
    {name: "λ = 0", dash: "solid", of: (run) => run.layers?.gain_nats}, {name: "random change as large", dash: "dash", of: (run) => run.layers?.random_gain_nats}]},
  "needles without it": {unit: "share", axis: "Needles found", lines: [
    {name: "λ = 0", dash: "solid", of: (run) => needleOf(run)?.accuracy_without_noise},
    {name: "as trained", dash: "dot", of: (run) => listOf(needleOf(run)?.accuracy_without_noise).map((value) => (Number.isFinite(value) ? needleOf(run).accuracy_with_noise : null))}]},
};
const hasTerm = (show) => (run) => kTermLines[show].lines.every(({of}) => listOf(of(run)).some(Number.isFinite));
// What can be shown, of which group.
const termChoices = (report) => Object.keys(kTermLines).flatMap((show) => distinct(studyRuns(report).filter(hasTerm(show)).map(groupOf)).map((group) => ({show, group, value: `${show} (${group})`})));

const kStudyTerms = {
  id: "terms",
  title: "The noise term, layer by layer",
  about: "λ beside the λ that would take the most off A1; and what becomes of the loss and of the needles with λ = 0 in one layer alone. A random change of the layer's outputs, as large in every row as λ = 0 makes it, is the measure of a rise of the loss: one that is no larger shows that the layer was disturbed, not that its noise term was of use. Needles have no such control here.",
  terms: [
    ["Projection", "λ* = ⟨A1, A2⟩/⟨A2, A2⟩ over the entries that are no induction targets, mean over heads, or of all heads of a layer that share a λ: A1 − λ*·A2 has the least norm (docs/analyses/lambda-optimum.md). It describes the maps; whether taking off more would be better, it does not say."],
    ["λ = 0 in one layer", "The head norm is kept. The other layers were trained beside this noise term (docs/analyses/layer-gain.md)."],
  ],
  claims: [11, 12],
  shown: (report) => termChoices(report).length > 0,
  keys: () => [],
  controls: (report) => [
    {id: "show", label: "Show", options: termChoices(report).map(({value}) => ({value, text: value}))},
    {id: "member", label: "Member", options: [...memberOptions(report, (run) => Object.keys(kTermLines).some((show) => hasTerm(show)(run))), {value: "", text: "all members"}]}],
  draw(report, state, width) {
    const {show, group} = termChoices(report).find(({value}) => value === state.show) ?? termChoices(report)[0];
    const {unit, axis, lines: kinds} = kTermLines[show];
    const runs = runsOf(report, group).filter(hasTerm(show));
    const lines = membersOf(runs).filter((name) => !state.member || name === state.member).flatMap((member) => {
      const own = runs.filter((run) => run.member === member);
      const layers = Math.max(...own.map((run) => listOf(kinds[0].of(run)).length));
      return kinds.map(({name, dash, of}) => ({member, kind: name, name: `${member}, ${name}`, color: memberStyle(report, member).color, dash, points: indices(layers).map((layer) => overSeeds(own, (run) => listOf(of(run))[layer]))}));
    });
    if (!lines.length) return {missing: `${group} has no ${show} of ${state.member}.`};
    return {
      traces: layerLines(lines.map(({member: _, kind, ...line}) => line), unit),
      layout: {showlegend: true, xaxis: layersAxis(Math.max(...lines.map(({points}) => points.length))), yaxis: {title: {text: axis}, rangemode: "tozero", ...(unit === "share" ? {tickformat: ".0%"} : {})}},
      height: withLegend(360, width, lines.map(({name}) => name)),
      sentence: `By layer (${group}): ${lines.slice(0, 4).map(({name, points}) => `${name} ${meansText(points.filter(({seeds}) => seeds), unit)}`).join("; ")}${lines.length > 4 ? "; the others are in the table" : ""}.`,
      label: `${axis} by layer, ${countText(lines.length, "line")}`,
      table: {name: "terms", columns: ["group", "member", "line", "layer", ...kSeedColumns], rows: lines.flatMap(({member, kind, points}) => points.map((point, layer) => [group, member, kind, layer, ...seedCells(point)]))},
    };
  },
};

const depthCells = (run) => listOf(needleOf(run)?.cells).filter((cell) => cell && Number.isFinite(cell.length) && Number.isFinite(cell.depth) && cell.asked > 0);

const kStudyDepths = {
  id: "depths",
  title: "Needles by depth, member beside member",
  about: "A row is a member, a column a depth of the asked needle (0 % is the beginning of the text); lengths of the prompt stand side by side. The colour is the share answered right over all seeds. A cell at chance, marked on the colour bar, was guessed.",
  terms: [["Share right", "Questions answered right / questions asked, all seeds together; only the question whose needle lies at this depth. Chance: one of the numbers in the prompt at random."]],
  claims: [4, 9, 10, 13, 16],
  keys: () => [],
  controls: (report) => [groupControl(report, (run) => depthCells(run).length)],
  draw(report, state, width) {
    const runs = runsOf(report, state.group).filter((run) => depthCells(run).length);
    if (!runs.length) return {missing: "no run has its needles by depth."};
    const members = membersOf(runs);
    const every = runs.flatMap(depthCells);
    const [lengths, depths] = [sortedValues(every, "length"), sortedValues(every, "depth")];
    const cellOf = (member, length, depth) => {
      const own = runs.filter((run) => run.member === member);
      const at = (run) => depthCells(run).find((cell) => cell.length === length && cell.depth === depth);
      const [right, asked] = ["right", "asked"].map((key) => own.reduce((sum, run) => sum + (at(run)?.[key] ?? 0), 0));
      return {member, length, depth, right, asked, ...overSeeds(own, (run) => at(run)?.right / at(run)?.asked), mean: asked ? right / asked : null};
    };
    const cells = lengths.map((length) => members.map((member) => depths.map((depth) => cellOf(member, length, depth))));
    const {chance} = needleOf(runs[0]);
    const place = (block, i) => block * (depths.length + 0.6) + i;
    const columns = lengths.flatMap((_, block) => indices(depths.length).map((i) => place(block, i)));
    const ticks = indices(columns.length).filter((i) => width >= 60 * columns.length || (i % depths.length) % 2 === 0);
    const text = (cell) => `${plotText(cell.member)}<br>${cellText(cell)}<br>${cell.right} of ${cell.asked} right: ${seedsText(cell, "share")}`;
    const flat = cells.flat(2);
    const sorted = flat.filter((cell) => cell.mean !== null).sort((a, b) => a.mean - b.mean);
    const where = (cell) => `${cell.member} at ${cellText(cell)} (${cell.right} of ${cell.asked})`;
    const colors = theme();
    const label = (cell) => (cell.mean === null ? "" : formatShare(cell.mean));
    const marks = Number.isFinite(chance) ? [...(width < 520 ? [] : [{at: 0, text: "0 %"}]), {at: chance, text: width < 520 ? "chance" : `chance, ${formatShare(chance)}`}, {at: 1, text: "100 %"}] : [{at: 0, text: "0 %"}, {at: 1, text: "100 %"}];
    return {
      traces: [
        ...cells.map((block, b) => ({
          type: "heatmap", x: indices(depths.length).map((i) => place(b, i)), y: indices(members.length), z: block.map((row) => row.map((cell) => cell.mean)), text: block.map((row) => row.map(text)), hovertemplate: "%{text}<extra></extra>",
          zmin: 0, zmax: 1, colorscale: colors.sequential, xgap: 2, ygap: 2, showscale: b === 0, colorbar: colorBar(width, {tickangle: 0, tickmode: "array", tickvals: marks.map((mark) => mark.at), ticktext: marks.map((mark) => mark.text)}),
        })),
        ...(width >= 75 * columns.length ? [{
          type: "scatter", mode: "text", x: members.flatMap(() => columns), y: members.flatMap((_, row) => columns.map(() => row)), text: members.flatMap((_, row) => cells.flatMap((block) => block[row].map(label))),
          textfont: {color: members.flatMap((_, row) => cells.flatMap((block) => block[row].map((cell) => ((cell.mean ?? 0) > 0.5 ? colors.card : colors.ink))))}, hoverinfo: "skip", showlegend: false,
        }] : []),
      ],
      layout: {
        xaxis: {title: {text: "Depth of the needle"}, range: [-0.6, columns.at(-1) + 0.6], tickmode: "array", tickvals: ticks.map((i) => columns[i]), ticktext: ticks.map((i) => depthText(depths[i % depths.length])), tickangle: width < 520 ? -60 : 0, showgrid: false},
        yaxis: {range: [members.length - 0.5, -0.5], tickmode: "array", tickvals: indices(members.length), ticktext: members, showgrid: false},
        annotations: lengths.map((length, b) => ({x: place(b, (depths.length - 1) / 2), xref: "x", y: 1, yref: "paper", yanchor: "bottom", text: `${length} tokens`, showarrow: false, font: {color: colors.soft}})),
        margin: {l: 48, r: 12, t: width < 520 ? 84 : 34, b: 46},
      },
      height: 130 + (width < 520 ? 90 : 0) + 30 * members.length,
      sentence: sorted.length ? `${isSame(sorted[0].mean, sorted.at(-1).mean) ? `The same is found in all cells, ${formatShare(sorted[0].mean)}` : `Least is found by ${where(sorted[0])}, most by ${where(sorted.at(-1))}`}.${Number.isFinite(chance) ? ` Chance is ${formatShare(chance)}.` : ""}` : "",
      label: `Heat maps of needles found, ${countText(members.length, "member")} by ${countText(depths.length, "depth")}, ${countText(lengths.length, "length")}`,
      table: {name: "depths", columns: ["member", "length", "depth", "right", "asked", "share right", "least of seeds", "most of seeds", "seeds", "chance"], rows: flat.map((cell) => [cell.member, cell.length, cell.depth, cell.right, cell.asked, ...seedCells(cell), finiteOrNull(chance)])},
    };
  },
};

const hessianOf = (run) => listOf(run.hessian).filter((point) => point && Number.isFinite(point.step));
const endValues = (point, end) => listOf(point?.[end]).map((entry) => entry?.value).filter(Number.isFinite);

// What is drawn of a spectrum: its number at a point, and the title of its axis.
const kSpectrum = {
  negative_share: {text: "Negative share", value: (point) => point?.negative_share?.mean, error: (point) => point?.negative_share?.error, unit: "share"},
  negative_weight: {text: "Negative weight", value: (point) => point?.negative_weight?.mean, error: (point) => point?.negative_weight?.error, unit: "share"},
  highest: {text: "Highest eigenvalues", value: (point) => (endValues(point, "highest").length ? Math.max(...endValues(point, "highest")) : null), unit: "number"},
  lowest: {text: "Lowest eigenvalues", value: (point) => (endValues(point, "lowest").length ? Math.min(...endValues(point, "lowest")) : null), unit: "number"},
};

const kStudyHessian = {
  id: "hessian",
  title: "The Hessian at checkpoints",
  about: "How the loss curves at the weights of a checkpoint. Lines are means over seeds, bars what the seeds span; dots are the ten values of that end, of every seed. Most of the spectrum lies so close to 0 that its sign is uncertain, so the negative weight says more than the negative share. Equal steps are not equal loss, and fewer negative eigenvalues need not mean easier training.",
  terms: [
    ["Lowest, highest", "The ten eigenvalues at either end of the Hessian's spectrum, with sign, by Lanczos; the table has the most extreme."],
    ["Negative share", "Estimated share of the spectrum below −(zero band), by stochastic Lanczos quadrature."],
    ["Negative weight", "Σ|λ| over the negative eigenvalues / Σ|λ| over all. The error in the table is the standard error over probes, mean over seeds (docs/analyses/hessian.md)."],
  ],
  claims: [23],
  keys: () => [],
  controls: (report) => [groupControl(report, (run) => hessianOf(run).length), {id: "show", label: "Show", options: Object.entries(kSpectrum).map(([value, {text}]) => ({value, text}))}],
  draw(report, state, width) {
    const runs = runsOf(report, state.group).filter((run) => hessianOf(run).length);
    const {text, value, error, unit} = kSpectrum[state.show];
    const at = (run, step) => hessianOf(run).find((point) => point.step === step);
    const lines = membersOf(runs).map((member) => {
      const own = runs.filter((run) => run.member === member);
      const steps = distinct(own.flatMap((run) => hessianOf(run).map(({step}) => step))).sort((a, b) => a - b).filter((step) => own.some((run) => Number.isFinite(value(at(run, step)))));
      const errors = steps.map((step) => (error ? overSeeds(own, (run) => error(at(run, step))).mean : null));
      return {member, own, steps, errors, points: steps.map((step) => overSeeds(own, (run) => value(at(run, step)))), ...memberStyle(report, member)};
    }).filter(({steps}) => steps.length);
    if (!lines.length) return {missing: "no Hessian was measured in these runs."};
    const dots = error ? [] : lines.map(({member, own, color}) => {
      const all = own.flatMap((run) => hessianOf(run).flatMap((point) => endValues(point, state.show).map((y) => ({x: point.step, y, seed: run.seed}))));
      return {
        type: "scatter", mode: "markers", x: all.map(({x}) => x), y: all.map(({y}) => y), name: `${member}, ten values`, showlegend: false, marker: {size: 5, color: faded(color, 0.4)},
        text: all.map((dot) => `${plotText(member)}, seed ${dot.seed}<br>step ${dot.x}<br>${formatNumber(dot.y)}`), hovertemplate: "%{text}<extra></extra>",
      };
    });
    const last = lines.map(({member, steps, points}) => `${member} ${seedsText(points.at(-1), unit)} at step ${steps.at(-1)}`);
    return {
      traces: [...dots, ...lines.flatMap(({member, steps, points, color, dash}) => seedLine({x: steps, points, name: member, color, dash, unit, place: (i) => `step ${steps[i]}`}))],
      layout: {showlegend: true, xaxis: {title: {text: "Step of training"}}, yaxis: {title: {text}, ...(unit === "share" ? {tickformat: ".1%", rangemode: "tozero"} : {zeroline: true, zerolinecolor: theme().soft})}},
      height: withLegend(360, width, lines.map(({member}) => member)),
      sentence: `${text.replace("eigenvalues", "eigenvalue")} of the Hessian at the last checkpoint: ${last.slice(0, 6).join("; ")}${last.length > 6 ? "; the others are in the table" : ""}.`,
      label: `${text} of the Hessian by step, ${countText(lines.length, "member")}`,
      table: {name: `hessian-${state.show}`, columns: ["member", "step", ...kSeedColumns, "error"], rows: lines.flatMap(({member, steps, points, errors}) => points.map((point, i) => [member, steps[i], ...seedCells(point), errors[i]]))},
    };
  },
};
