"use strict";
// The pictures of needle results: accuracy and attention by depth and length, and attention by head.

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

function answersTable(report) {
  const rows = needleAnswers(needleCells(report)).map(({cell, sample, answer, q}) =>
    [cell.length, cell.depth, sample.real_depth, sample.sample, q, answer.city, answer.number, answer.text, answer.right ? "yes" : "no", finiteOrNull(answer.attention_on_answer)]);
  return {name: "answers", columns: ["length", "depth", "real depth", "sample", "question", "city", "number", "answer", "right", "attention"], rows, most: 3000};
}

const kNeedlePage = {
  unit: "sample",
  sections: [kNeedleAccuracy, kNeedleAttention, kNeedleHeads],
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
