"use strict";
// The pictures of needle results: accuracy and attention by depth and length, attention by head, and one row of it.

const needleCells = (report) => (Array.isArray(report.results.cells) ? report.results.cells : []).filter((c) => Number.isFinite(c?.length) && Number.isFinite(c?.depth));
const needleAnswers = (cells) => cells.flatMap((cell) => (cell.samples ?? []).flatMap((sample) => (sample.answers ?? []).map((answer, q) => ({cell, sample, answer, q}))));
const sortedValues = (cells, key) => [...new Set(cells.map((cell) => cell[key]))].sort((a, b) => a - b);
const countText = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
const depthText = (depth) => formatShare(depth);
const cellText = (cell) => `${cell.length} tokens, depth ${depthText(cell.depth)}`;

function proportionText({right, asked, accuracy, low, high}) {
  return `${right} of ${asked} right, ${formatMeasured({mean: accuracy, low, high}, "share")}`;
}

// A heat map of depth by length. `value(cell)` gives a share or null, `text(cell)` what the pointer shows.
function needleGrid(cells, width, {value, text, top}) {
  const lengths = sortedValues(cells, "length");
  const depths = sortedValues(cells, "depth");
  const at = (length, depth) => cells.find((cell) => cell.length === length && cell.depth === depth);
  const grid = (of) => depths.map((depth) => lengths.map((length) => {
    const cell = at(length, depth);
    return cell ? of(cell) : null;
  }));
  const labels = cells.length <= 80 && lengths.length * 62 < width;
  return {
    traces: [{
      type: "heatmap", x: indices(lengths.length), y: indices(depths.length), z: grid(value), text: grid(text), hovertemplate: "%{text}<extra></extra>",
      zmin: 0, zmax: top, colorscale: theme().sequential, xgap: 2, ygap: 2, colorbar: colorBar(width, {tickformat: top < 0.05 ? ".1%" : ".0%"}),
    }, ...(labels ? [{
      type: "scatter", mode: "text", x: depths.flatMap(() => indices(lengths.length)), y: indices(depths.length).flatMap((d) => lengths.map(() => d)), hoverinfo: "skip", showlegend: false,
      text: grid((cell) => (value(cell) === null ? "" : formatShare(value(cell)))).flat(),
      textfont: {color: grid((cell) => ((value(cell) ?? 0) > 0.5 * top ? theme().card : theme().ink)).flat()},
    }] : [])],
    layout: {
      xaxis: {title: {text: "Length of the prompt, tokens"}, range: [-0.5, lengths.length - 0.5], ...idTicks(lengths, (width - 120) / 2), showgrid: false},
      yaxis: {title: {text: "Depth of the needle"}, range: [depths.length - 0.5, -0.5], ...idTicks(depths.map(depthText), 400), showgrid: false},
    },
    height: Math.min(620, Math.max(230, (width < 520 ? 170 : 120) + 42 * depths.length)),
  };
}

// "largest at …, 90 %, and smallest at …, 10 %"
function spreadText(cells, value) {
  const sorted = cells.filter((cell) => value(cell) !== null).sort((a, b) => value(a) - value(b));
  if (!sorted.length) return "";
  const [least, most] = [sorted[0], sorted.at(-1)];
  if (isSame(value(least), value(most))) return `the same in all cells, ${formatShare(value(most))}`;
  return `largest at ${cellText(most)} (${formatShare(value(most))}) and smallest at ${cellText(least)} (${formatShare(value(least))})`;
}

function chanceText({chance, accuracy_low: low, accuracy_high: high, settings}) {
  if (!Number.isFinite(chance)) return "";
  if (chance >= 1) return " With a single needle any number that is copied from the text is right.";
  const guess = ` Guessing among the ${settings?.needles ?? Math.round(1 / chance)} numbers would give ${formatShare(chance)}`;
  if (low > chance) return `${guess}: the model does better.`;
  return high < chance ? `${guess}: the model does worse.` : `${guess}: the model cannot be told from it with so few questions.`;
}

function needleSentence({results}) {
  const {right, asked, accuracy, accuracy_low: low, accuracy_high: high} = results;
  if (!Number.isFinite(accuracy)) return "";
  return `Of ${countText(asked, "question")} the model answers ${right} right: ${formatMeasured({mean: accuracy, low, high}, "share")}.${chanceText(results)}`;
}

const finiteOrNull = (x) => (Number.isFinite(x) ? x : null);

const kNeedleAccuracy = {
  id: "accuracy",
  title: "What is found, by depth and length",
  about: "Each cell holds the prompts of one length whose first asked needle lies at one depth: 0 % is the beginning of the text, 100 % its end. Where several needles are asked, the others lie at random depths; choose the first asked ones to see the depth alone. The table has the real depths, which differ a little since a needle goes between sentences.",
  keys: () => ["accuracy"],
  controls: (report) => ((report.results.settings?.queries ?? 1) > 1 ? [{id: "which", label: "Questions", options: [{value: "all", text: "all that are asked"}, {value: "first", text: "the first, whose depth this is"}]}] : []),
  draw(report, state, width) {
    const cells = needleCells(report);
    if (!cells.length) return {missing: "these results hold no cells."};
    const part = (cell) => (state.which === "first" ? cell.first ?? {} : cell);
    const value = (cell) => finiteOrNull(part(cell).accuracy);
    return {
      ...needleGrid(cells, width, {value, top: 1, text: (cell) => `${cellText(cell)}<br>${plotText(proportionText(part(cell))).replace(", ", "<br>")}`}),
      sentence: `${needleSentence(report)} By cell ${state.which === "first" ? "the accuracy of the first question" : "accuracy"} is ${spreadText(cells, value)}; a cell has ${countText(part(cells[0]).asked, "question")}.`,
      label: `Heat map of accuracy, ${sortedValues(cells, "depth").length} depths by ${sortedValues(cells, "length").length} lengths`,
      table: {
        name: "needles", columns: ["length", "depth", "real depth", "prompt tokens", "asked", "right", "accuracy", "interval low", "interval high", "first asked", "first right"],
        rows: cells.map((c) => [c.length, c.depth, c.real_depth, c.prompt_tokens, c.asked, c.right, c.accuracy, c.low, c.high, c.first?.asked ?? null, c.first?.right ?? null]),
      },
    };
  },
};

// Mean attention of the answers that are right and of those that are wrong.
function rightAndWrongText(cells) {
  const meanOf = (right) => mean(needleAnswers(cells).filter(({answer}) => answer.right === right).map(({answer}) => answer.attention_on_answer).filter(Number.isFinite));
  const [right, wrong] = [meanOf(true), meanOf(false)];
  if (right === null || wrong === null) return "";
  return ` Before right answers it is ${formatShare(right)}, before wrong ones ${formatShare(wrong)}.`;
}

const kNeedleAttention = {
  id: "attention",
  title: "How much attention lies on the answer",
  about: "The mean over all layers and heads. Most heads do other things, so a small share is no failure: compare cells and models, and see the heads below.",
  keys: () => ["attention_on_answer"],
  controls: () => [],
  draw(report, state, width) {
    const cells = needleCells(report);
    const stored = (cell) => readMeasure(cell.attention_on_answer);
    const value = (cell) => stored(cell)?.mean ?? null;
    const known = cells.filter((cell) => value(cell) !== null);
    if (!known.length) return {missing: "the attention on the answers was not measured."};
    const whole = readMeasure(report.results.attention_on_answer);
    const top = Math.max(...known.map(value)) || 1;
    const interval = intervalColumns(known.map(stored));
    return {
      ...needleGrid(cells, width, {value, top, text: (cell) => `${cellText(cell)}<br>${plotText(formatMeasured(stored(cell), "share")).replace(" (", "<br>(")}`}),
      sentence: `When the first digit of the number is to be written, ${formatMeasured(whole, "share")} of the weight lies on the number's tokens, ${spreadText(cells, value)}.${rightAndWrongText(cells)}${intervalNote(known.map(stored))}`,
      label: `Heat map of attention on the answer, ${sortedValues(cells, "depth").length} depths by ${sortedValues(cells, "length").length} lengths`,
      table: {
        name: "needle-attention", columns: ["length", "depth", "mean", "median", ...interval.names], note: interval.note,
        rows: known.map((cell) => [cell.length, cell.depth, stored(cell).mean, stored(cell).median, ...interval.cells(stored(cell))]),
      },
    };
  },
};

const kNeedleHeads = {
  ...kOverview,
  id: "heads",
  title: "Which heads look at the answer",
  controls: () => [],
  start: () => ({measure: "attention_on_answer"}),
  about: "Each cell is one head: its mean over all questions. Layers that see only a window of the text have 0 where the number lies further back.",
};

// One row of attention, as the extras hold it; null where they do not.
function exampleRow(report) {
  const row = report.extras.needle_row;
  const lists = [row?.layers, row?.tokens, row?.number].every(Array.isArray);
  return lists && row.layers.length && row.layers.every((layer) => Array.isArray(layer?.positive)) ? row : null;
}

// A1, A2 (null without a noise term) and λ of a head.
function headRow({layers}, layer, head) {
  const a1 = layers[layer]?.positive?.[head];
  const a2 = layers[layer]?.noise?.[head] ?? null;
  return a1 ? {a1, a2, own: a2 ? layers[layer].lambda[head] : 0} : null;
}

// P_j = A1_j − λ·A2_j and what a sentence says of it.
function rowFigures({a1, a2}, lambda, [from, to]) {
  const weights = a1.map((x, j) => (a2 ? x - lambda * a2[j] : x));
  const sum = (values) => values.reduce((total, x) => total + x, 0);
  const magnitude = sum(weights.map(Math.abs));
  return {
    weights, sum: sum(weights), share: magnitude > 0 ? sum(weights.slice(from, to)) / magnitude : null,
    negative: weights.filter((x) => x < 0).length, largest: weights.indexOf(Math.max(...weights)),
  };
}

// The figures in words, each followed by the same of softmax's simplex in brackets where there is one to hold beside.
function rowText(figures, simplex, tokens) {
  const beside = (text) => (of) => text(of) + (simplex ? ` (${text(simplex)})` : "");
  const parts = [
    ["the row sums to ", ({sum}) => formatNumber(Math.round(1e4 * sum) / 1e4)], ["the share of its weight on the answer is ", ({share}) => formatShare(share)],
    ["", ({negative}) => String(negative), ` of ${figures.weights.length} weights are negative`],
    ["the largest is ", ({weights, largest}) => `${formatNumber(weights[largest])} on ‘${showToken(tokens[largest])}’ at ${largest}`],
  ];
  return parts.map(([before, text, behind = ""]) => before + beside(text)(figures) + behind).join(", ");
}

// Labels for the answer as a whole and for the heaviest other tokens, as many as there is room for.
function rowTicks(weights, tokens, [from, to], pixels) {
  const apart = 15 * tokens.length / Math.max(1, pixels);
  const label = (token) => plotText(showToken(token, 10));
  const chosen = [{at: (from + to - 1) / 2, text: `<b>${label(tokens.slice(from, to).join(""))}</b>`}];
  const order = indices(tokens.length).filter((j) => j < from || j >= to).sort((a, b) => Math.abs(weights[b]) - Math.abs(weights[a]));
  for (const j of order) {
    if (chosen.length < 13 && chosen.every(({at}) => Math.abs(at - j) >= apart)) chosen.push({at: j, text: label(tokens[j])});
  }
  return {tickmode: "array", tickvals: chosen.map(({at}) => at), ticktext: chosen.map(({text}) => text), tickangle: -90};
}

// The axis of weights: as they are, or by the signed square root, on which small ones can be seen.
const kRowScales = {
  root: {text: "Square root, shows small weights", title: "Weight, square-root axis", to: (x) => Math.sign(x) * Math.sqrt(Math.abs(x))},
  plain: {text: "As they are", title: "Weight", to: (x) => x},
};

function rowAxis(scale, low, top) {
  const [a, b] = [scale.to(low), scale.to(top)];
  const range = [a - 0.04 * (b - a), b + 0.04 * (b - a)];
  const marks = [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 1.5].filter((x) => scale.to(x) >= 0.06 * (b - a)).flatMap((x) => [-x, x]);
  const shown = [0, ...marks].filter((x) => scale.to(x) >= range[0] && scale.to(x) <= range[1]);
  return {title: {text: scale.title}, range, ...(scale === kRowScales.plain ? {} : {tickmode: "array", tickvals: shown.map(scale.to), ticktext: shown.map((x) => String(x).replace("-", "−"))})};
}

const kNeedleRow = {
  id: "row",
  title: "Leaving the simplex",
  about: "Each bar is the weight P_j(λ) = A1_j − λ·A2_j on token j, in the row that predicts the number's first digit. At λ = 0 it is that of softmax: no weight below 0, sum 1, a point of the simplex. " +
    "As λ grows the row sum falls as 1 − λ, and where the noise outweighs the signal the weight turns negative. Where A2 ≥ 0 no weight can rise with λ; its share can. " +
    "The share on the answer is Σ_answer P_j / Σ_j |P_j|: a negative weight on the answer counts against it, where attention on the answer takes |P_j|. " +
    "Only this row is computed anew; what the model would read and say with another λ is not. The first head shown is the one with the largest share at the model's own λ. The dots are the weights at λ = 0.",
  keys: () => ["attention_on_answer"],
  controls(report) {
    const row = exampleRow(report);
    if (!row) return [];
    const lambdas = row.layers.flatMap((layer) => layer.lambda ?? []);
    const resets = {lambda: null};
    return [
      {id: "layer", label: "Layer", options: choices("Layer", row.layers.map((l) => l.layer)), resets},
      {id: "head", label: "Head", options: choices("Head", indices(Math.max(...row.layers.map((l) => l.positive.length)))), resets},
      {id: "scale", label: "Axis of weights", options: Object.entries(kRowScales).map(([value, {text}]) => ({value, text}))},
      ...(lambdas.length ? [
        {id: "lambda", label: "λ (the mark: the model's own)", range: [Math.min(0, Math.floor(Math.min(...lambdas))), Math.max(1.5, Math.ceil(Math.max(...lambdas))), 0.01]},
        {id: "own", button: "Back to the model's own λ", sets: resets},
      ] : []),
    ];
  },
  start(report) {
    const row = exampleRow(report);
    if (!row) return {};
    const heads = row.layers.flatMap((l, layer) => l.positive.map((_, head) => ({layer, head})));
    const share = ({layer, head}) => {
      const of = headRow(row, layer, head);
      return rowFigures(of, of.own, row.number).share ?? -1;
    };
    const best = heads.map((place) => ({...place, share: share(place)})).sort((a, b) => b.share - a.share)[0];
    return {layer: String(best?.layer ?? 0), head: String(best?.head ?? 0), lambda: null};
  },
  draw(report, state, width) {
    const row = exampleRow(report);
    if (!row) return {missing: "these results hold no row of attention."};
    const of = headRow(row, Number(state.layer), Number(state.head));
    const layer = row.layers[state.layer]?.layer;
    if (!of) return {missing: `layer ${layer} has no head ${state.head}.`};
    const {a1, a2, own} = of;
    if (!a2) state.lambda = null;
    const lambda = state.lambda ??= own;
    const [figures, simplex] = [lambda, 0].map((value) => rowFigures(of, value, row.number));
    const scale = kRowScales[state.scale] ?? kRowScales.root;
    const {weights} = figures;
    const colors = theme();
    const names = row.tokens.map((token) => plotText(showToken(token)));
    const [from, to] = row.number;
    const isAnswer = (j) => j >= from && j < to;
    const pixels = width - (width < 520 ? 60 : 80);
    const text = weights.map((p, j) => `${j} ‘${names[j]}’<br>P = <b>${formatNumber(p)}</b>` + (a2 ? `<br>A1 = ${formatNumber(a1[j])}, A2 = ${formatNumber(a2[j])}` : ""));
    const bars = (name, color, takes) => ({
      type: "bar", name, x: indices(weights.length), y: weights.map((p, j) => (takes(p, j) ? scale.to(p) : null)), text, textposition: "none", hovertemplate: "%{text}<extra></extra>",
      marker: {color, line: {color, width: weights.length * 2 > pixels ? 1 : 0}},
    });
    // The axis stays as it is while λ moves.
    const [, high] = this.controls(report).find((control) => control.range)?.range ?? [0, 0];
    const ends = [0, ...a1, ...weights, ...(a2 ? rowFigures(of, high, row.number).weights : [])];
    const [low, top] = [Math.min(...ends), Math.max(...ends)];
    const isOwn = a2 && lambda === own;
    const place = `layer ${layer} head ${state.head}`;
    const at = a2 ? `At λ = ${formatNumber(lambda)}${isOwn ? ", the model's own," : ""} in ${place} ` : `In ${place}, which has no noise term and so no λ to move, `;
    return {
      traces: [
        bars("weight", colors.series[0], (p, j) => p >= 0 && !isAnswer(j)),
        bars("negative", colors.negative, (p) => p < 0),
        bars("on the answer", colors.series[3], (p, j) => p >= 0 && isAnswer(j)),
        ...(a2 ? [{type: "scatter", mode: "markers", name: "at λ = 0", x: indices(weights.length), y: a1.map(scale.to), marker: {color: colors.soft, size: width < 520 ? 2.5 : 3.5}, hoverinfo: "skip"}] : []),
      ],
      layout: {
        barmode: "overlay", bargap: 0.15, margin: {l: 48, r: 12, t: 14, b: 72},
        xaxis: {range: [-0.8, weights.length - 0.2], showgrid: false, automargin: false, ...rowTicks(weights, row.tokens, row.number, pixels)},
        yaxis: {...rowAxis(scale, low, top), zeroline: true, zerolinecolor: colors.soft},
        shapes: [{type: "rect", xref: "x", x0: from - 0.5, x1: to - 0.5, yref: "paper", y0: 0, y1: 1, fillcolor: faded(colors.series[3], 0.16), line: {width: 0}, layer: "below"}],
      },
      height: width < 520 ? 400 : 460,
      ranges: a2 ? {lambda: {text: `λ = ${formatNumber(lambda)}${isOwn ? ", the model's own" : `; the model's own is ${formatNumber(own)}`}`, mark: own}} : {},
      sentence: `Asked for ${row.city}, whose number is ${row.answer}, the model says ‘${showToken(row.text)}’. ${at}${rowText(figures, a2 ? simplex : null, row.tokens)}.` +
        (a2 ? " In brackets: at λ = 0, on softmax's simplex." : figures.negative || Math.abs(figures.sum - 1) > 1e-3 ? "" : " It lies on softmax's simplex."),
      label: `Bars of one row of attention, ${place}, ${weights.length} tokens`,
      table: {
        name: `row-layer-${layer}-head-${state.head}`, columns: ["place", "token", "answer", "A1", "A2", "P"], source: kOwnData, note: a2 ? `λ = ${lambda}` : "no noise term",
        rows: weights.map((p, j) => [j, showToken(row.tokens[j]), isAnswer(j) ? "yes" : "", a1[j], a2?.[j] ?? null, p]),
      },
    };
  },
};

function answersTable(report) {
  const rows = needleAnswers(needleCells(report)).map(({cell, sample, answer, q}) =>
    [cell.length, cell.depth, sample.real_depth, sample.sample, q, answer.city, answer.number, answer.text, answer.right ? "yes" : "no", finiteOrNull(answer.attention_on_answer)]);
  return {name: "answers", columns: ["length", "depth", "real depth", "sample", "question", "city", "number", "answer", "right", "attention"], rows, most: 3000};
}

const kNeedlePage = {
  unit: "sample",
  limits: needleLimits,
  sections: () => [kNeedleAccuracy, kNeedleAttention, kNeedleHeads, kNeedleRow],
  subtitle({results}) {
    const {needles, queries, samples} = results.settings ?? {};
    return [countText(results.asked ?? 0, "question"), needles && `${countText(needles, "needle")} in a prompt, ${queries} asked`, samples && `${countText(samples, "prompt")} a cell`].filter(Boolean).join(" · ");
  },
  summary(report) {
    const lines = [needleSentence(report)];
    const cells = needleCells(report);
    if (cells.length > 1) lines.push(`Over depths and lengths, accuracy is ${spreadText(cells, (cell) => finiteOrNull(cell.accuracy))}.`);
    if (report.keys.includes("attention_on_answer")) lines.push(overviewSentence(report, "attention_on_answer"));
    return lines.filter(Boolean);
  },
  empty: "These results hold no answers.",
  figures: {title: "All answers", open: "All answers, one line a question", table: answersTable, sentence: (table) => `${countText(table.rows.length, "answer")}, in the model's own words.`, keys: () => ["accuracy", "attention_on_answer"]},
};
