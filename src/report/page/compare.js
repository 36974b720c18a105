"use strict";
// The pictures of a comparison: how far each model is from the first, and one measure of all of them.

const comparedModels = (report) => (Array.isArray(report.results.models) ? report.results.models : []).filter((model) => model && typeof model.name === "string" && model.measures);
const comparedPairs = (report, model) => (Array.isArray(report.results.paired) ? report.results.paired : []).filter((pair) => pair && pair.model === model && Number.isFinite(pair.difference));
const isClear = ({low, high}) => Number.isFinite(low) && Number.isFinite(high) && (low > 0 || high < 0);

// Of the first model's mean, so that measures of all units stand on one axis.
function relativePairs(report, model) {
  const first = comparedModels(report)[0];
  return comparedPairs(report, model).flatMap((pair) => {
    const base = Math.abs(first?.measures[pair.measure]?.mean);
    const share = (x) => (Number.isFinite(x) && base > 0 ? x / base : null);
    return share(pair.difference) === null ? [] : [{...pair, base, middle: share(pair.difference), ends: [share(pair.low), share(pair.high)]}];
  });
}

const kDifferences = {
  id: "differences",
  title: "What differs",
  about: "Each line is a measure: how much higher or lower it is than in the first model, as a share of the first model's mean, with the 95 % interval over the units that both have read: windows of the text, prompts, questions. A difference whose bar does not touch 0 is filled.",
  keys: (state, report) => relativePairs(report, state.model).map(({measure}) => measure),
  controls: (report) => [{id: "model", label: "Model", options: comparedModels(report).slice(1).map(({name}) => ({value: name, text: name}))}],
  draw(report, state, width) {
    const [first] = comparedModels(report);
    const pairs = relativePairs(report, state.model);
    if (!pairs.length) return {missing: "the models have no measure in common."};
    const colors = theme();
    const shown = [...pairs].sort((a, b) => a.middle - b.middle);
    const clear = shown.filter(isClear);
    const names = shown.map(({measure}) => measureOf(measure).name);
    const text = shown.map((pair) => `${measureOf(pair.measure).name}<br>${formatSigned(pair.middle)} of ${formatNumber(pair.base)}<br>difference ${formatNumber(pair.difference)} (${formatNumber(pair.low)} to ${formatNumber(pair.high)})<br>${countText(pair.units, pair.unit)}`);
    const largest = clear.length ? clear.reduce((a, b) => (Math.abs(b.middle) > Math.abs(a.middle) ? b : a)) : null;
    return {
      traces: [{
        type: "scatter", mode: "markers", x: shown.map(({middle}) => middle), y: indices(shown.length), text, hovertemplate: "%{text}<extra></extra>", showlegend: false,
        marker: {size: 9, color: shown.map((pair) => (isClear(pair) ? colors.series[0] : colors.card)), line: {color: colors.series[0], width: 1.5}},
        error_x: {type: "data", symmetric: false, array: shown.map(({middle, ends}) => (ends[1] === null ? 0 : ends[1] - middle)), arrayminus: shown.map(({middle, ends}) => (ends[0] === null ? 0 : middle - ends[0])), color: colors.soft, thickness: 1.5, width: 0},
      }],
      layout: {
        xaxis: {title: {text: `Difference, share of ${first.name}`}, tickformat: "+.0%", zeroline: true, zerolinecolor: colors.soft},
        yaxis: {tickmode: "array", tickvals: indices(names.length), ticktext: names, range: [-0.7, names.length - 0.3], showgrid: false},
        margin: {l: 48, r: width < 520 ? 8 : 24, t: 14, b: 46},
      },
      height: 110 + 21 * shown.length,
      label: `Differences of ${state.model} from ${first.name}`,
      sentence: `Of ${countText(shown.length, "measure")} ${state.model} differs clearly from ${first.name} in ${clear.length}` +
        (largest ? `; most of all in ${measureOf(largest.measure).name}, ${formatSigned(largest.middle)}.` : "."),
      table: {
        name: "differences", columns: ["measure", "unit", "units", first.name, state.model, "difference", "low", "high"],
        rows: shown.map((pair) => [pair.measure, pair.unit, pair.units, first.measures[pair.measure].mean, comparedModels(report).find(({name}) => name === state.model)?.measures[pair.measure]?.mean ?? null, pair.difference, pair.low, pair.high]),
      },
    };
  },
};

const formatSigned = (share) => `${share < 0 ? "−" : "+"}${formatNumber(100 * Math.abs(share))} %`;
// Those that all models have first, predictions before attention.
function comparedKeys(report) {
  const models = comparedModels(report);
  const without = (key) => models.filter(({measures}) => !Number.isFinite(measures[key]?.mean)).length;
  const known = ["loss_nats", "bits_per_byte", "token_error", "needle_accuracy", ...Object.keys(kMeasures)];
  const place = (key) => (known.includes(key) ? known.indexOf(key) : known.length);
  return distinct(models.flatMap(({measures}) => Object.keys(measures))).filter((key) => without(key) < models.length)
    .sort((a, b) => without(a) - without(b) || place(a) - place(b));
}

const kSideBySide = {
  id: "side-by-side",
  title: "One measure, all models",
  about: "Mean of each model with its 95 % interval. Intervals of two models may overlap where their difference, taken unit by unit, is clear: compare by the differences.",
  keys: (state) => [state.measure],
  controls: (report) => [{id: "measure", label: "Measure", options: comparedKeys(report).map((key) => ({value: key, text: measureOf(key).name, group: measureOf(key).group}))}],
  draw(report, state, width) {
    const entries = comparedModels(report).flatMap(({name, measures}) => (Number.isFinite(measures[state.measure]?.mean) ? [{name, ...measures[state.measure]}] : []));
    if (!entries.length) return {missing: "no model has a value of any measure."};
    const {name, unit} = measureOf(state.measure);
    const colors = theme();
    const without = comparedModels(report).length - entries.length;
    const reach = (end, sign) => entries.map((e) => (Number.isFinite(e[end]) ? sign * (e[end] - e.mean) : 0));
    return {
      traces: [{
        type: "scatter", mode: "markers", x: indices(entries.length), y: entries.map(({mean}) => mean), text: entries.map((e) => `${plotText(e.name)}<br>${plotText(formatMeasured(e, unit))}`), hovertemplate: "%{text}<extra></extra>", showlegend: false,
        marker: {size: 11, color: entries.map((_, i) => colors.series[i % colors.series.length])},
        error_y: {type: "data", symmetric: false, array: reach("high", 1), arrayminus: reach("low", -1), color: colors.soft, thickness: 1.5, width: 4},
      }],
      layout: {xaxis: {...idTicks(entries.map((e) => e.name), Math.max(80, width - 100) * 0.3), range: [-0.6, entries.length - 0.4]}, yaxis: {}},
      height: 320,
      label: `${name} by model`,
      sentence: entries.map((e) => `${e.name}: ${formatMeasured(e, unit)}`).join("; ") + "." + (without ? ` ${countText(without, "model")} without it.` : ""),
      table: {name: `side-by-side-${state.measure}`, columns: ["model", "unit", "units", "mean", "low", "high"], rows: entries.map((e) => [e.name, e.unit, e.units, e.mean, e.low, e.high])},
    };
  },
};

const kGrowthShown = {
  "loss_nats": {text: "loss by tokens in front", axis: "Loss, nats a token", unit: "nats", of: (entry) => entry.loss_nats?.mean},
  "numbers": {text: "numbers to hold", axis: "Numbers", unit: "number", of: (entry) => entry.cache_numbers + entry.state_numbers},
  "multiply_adds": {text: "work of a token", axis: "Multiply-adds", unit: "number", of: (entry) => entry.multiply_adds},
};
const growthOf = (model) => listOf(model.growth).filter((entry) => entry && entry.tokens > 0);

const kGrowth = {
  id: "growth",
  title: "As the text grows",
  about: "What a model gains from more text in front of a token, and what that text costs it to keep. Softmax and every map of its kind keep the keys and values of all tokens; noise that is a state (lowrank_diff, fixed_diff) is a recurrence, as linear attention and state-space models are, and adds the same few numbers whatever the length.",
  terms: [
    ["Loss by tokens in front", "Nats a token of those that have N/2 to N − 1 tokens in front of them, mean over windows with its 95 % interval."],
    ["Numbers to hold", "Keys, values and states of all layers once N tokens have been read; a layer with a window keeps that many."],
    ["Work of a token", "Multiply-adds of attention for the N-th token, which sees itself too, without projections (docs/relations.md)."],
  ],
  shown: (report) => comparedModels(report).some((model) => growthOf(model).length),
  keys: () => [],
  controls: () => [{id: "show", label: "Show", options: Object.entries(kGrowthShown).map(([value, {text}]) => ({value, text}))}],
  draw(report, state, width) {
    const {text, axis, unit, of} = kGrowthShown[state.show];
    const {series} = theme();
    const dashes = ["solid", "dash", "dot", "dashdot"];
    const lines = comparedModels(report).map((model, m) => ({
      name: model.name, color: series[m % series.length], dash: dashes[Math.floor(m / series.length) % dashes.length],
      points: growthOf(model).map((entry) => ({tokens: entry.tokens, value: of(entry), low: state.show === "loss_nats" ? entry.loss_nats?.low : null, high: state.show === "loss_nats" ? entry.loss_nats?.high : null})).filter(({value}) => Number.isFinite(value)),
    })).filter(({points}) => points.length);
    if (!lines.length) return {missing: "no model was read far enough."};
    const ticks = distinct(lines.flatMap(({points}) => points.map(({tokens}) => tokens))).sort((a, b) => a - b);
    const reach = (points, end, sign) => points.map((point) => (Number.isFinite(point[end]) ? sign * (point[end] - point.value) : 0));
    const ends = ({name, points}) => `${name} ${formatValue(points[0].value, unit)} at ${points[0].tokens}${points.length > 1 ? `, ${formatValue(points.at(-1).value, unit)} at ${points.at(-1).tokens}` : ""}`;
    return {
      traces: lines.map(({name, color, dash, points}) => ({
        type: "scatter", mode: "lines+markers", name: plotText(name), x: points.map(({tokens}) => tokens), y: points.map(({value}) => value), line: {color, dash}, marker: {color, size: 6},
        error_y: {type: "data", symmetric: false, array: reach(points, "high", 1), arrayminus: reach(points, "low", -1), color, thickness: 1.2, width: 3},
        text: points.map((point) => `${plotText(name)}<br>${point.tokens} tokens<br>${formatValue(point.value, unit)}`), hovertemplate: "%{text}<extra></extra>",
      })),
      layout: {
        showlegend: true, xaxis: {title: {text: "Tokens N"}, type: "log", tickmode: "array", tickvals: ticks, ticktext: ticks.map(String)},
        yaxis: {title: {text: axis}, ...(state.show === "loss_nats" ? {} : {rangemode: "tozero"})},
      },
      height: withLegend(340, width, lines.map(({name}) => name)),
      sentence: `${text[0].toUpperCase()}${text.slice(1)}: ${lines.slice(0, 4).map(ends).join("; ")}${lines.length > 4 ? "; the others are in the table" : ""}.`,
      label: `${axis} by tokens, ${countText(lines.length, "model")}`,
      table: {
        name: "growth", columns: ["model", "tokens", "loss_nats", "low", "high", "cache_numbers", "state_numbers", "multiply_adds"],
        rows: comparedModels(report).flatMap((model) => growthOf(model).map((entry) => [model.name, entry.tokens, ...["mean", "low", "high"].map((key) => finiteOrNull(entry.loss_nats?.[key])), entry.cache_numbers, entry.state_numbers, entry.multiply_adds])),
      },
    };
  },
};

function comparedFigures(report) {
  const rows = comparedModels(report).flatMap(({name, measures}) => Object.entries(measures).flatMap(([key, value]) => (value ? [[name, key, value.unit, value.units, value.mean, value.median, value.low, value.high]] : [])));
  return {name: "all-figures", columns: ["model", "measure", "unit", "units", "mean", "median", "low", "high"], rows, most: 3000};
}

const kComparePage = {
  unit: "unit",
  limits: compareLimits,
  sections: () => [kDifferences, kSideBySide, kGrowth, ofModels(kMap), ofModels(kSpectra)],
  subtitle: (report) => comparedModels(report).map(({name}) => name).join(" · "),
  summary(report) {
    const models = comparedModels(report);
    // Of other numbers of tokens they cannot be compared.
    const known = models.filter(({perplexity}) => Number.isFinite(perplexity));
    const perplexity = known.length && distinct(models.map(({tokens}) => tokens)).length === 1 ? [`Perplexity: ${known.map((model) => `${model.name} ${formatNumber(model.perplexity)}`).join(", ")}.`] : [];
    return [...perplexity, ...["loss_nats", "needle_accuracy", "choice_accuracy", "last_word_accuracy", "negative_mass"].filter((key) => comparedKeys(report).includes(key)).map((key) =>
      `${measureOf(key).name}: ${models.map(({name, measures}) => `${name} ${measures[key] ? formatValue(measures[key].mean, measureOf(key).unit) : "–"}`).join(", ")}.`)];
  },
  empty: "These results hold no models.",
  figures: {
    title: "All figures", open: "All figures, one line a model and measure", table: comparedFigures,
    sentence: (table) => `${table.rows.length} measured values.`, keys: comparedKeys,
  },
};
