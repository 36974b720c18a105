"use strict";
// The pictures of measures over layers and heads. A picture is {id, title, keys, about, controls(report), draw(report,
// state)}; draw gives {traces, layout, height, sentence, label, table}, or {missing: why it cannot be drawn}.
// A table is {name, columns, rows} of plain values; its sentence holds no number that is not in the table or computed from it.

// Layers and heads go by their place here, 0 … count − 1; results may hold only some of a model's, so their own numbers
// are in layerIds and headIds. A layer may lack some of the heads.
class Report {
  constructor({results, extras}) {
    this.results = results;
    this.extras = extras ?? {};
    this.layers = Array.isArray(results.layers) ? results.layers : [];
    const headsOf = (layer) => (Array.isArray(layer?.heads) ? layer.heads : []);
    const id = (stored, place) => (Number.isInteger(stored) ? stored : place);
    this.layerIds = this.layers.map((layer, l) => id(layer?.layer, l));
    const ids = this.layers.map((layer) => headsOf(layer).map((head, h) => id(head?.head, h)));
    this.headIds = [...new Set(ids.flat())].sort((a, b) => a - b);
    this.places = ids.map((list) => this.headIds.map((head) => list.indexOf(head)));
    this.pairs = this.layers.flatMap((_, layer) => this.headIds.flatMap((_, head) => (this.places[layer][head] < 0 ? [] : [{layer, head}])));
    const keys = new Set(this.layers.flatMap((layer) => headsOf(layer).flatMap((head) => Object.keys(head ?? {}))));
    this.keys = [...keys].filter((key) => this.each(key).length > 0);
    const wide = new Set(this.layers.flatMap((layer) => Object.keys(layer ?? {})));
    this.layerKeys = [...wide].filter((key) => this.layers.some((_, l) => this.layerValue(l, key)));
    this.hasIntervals = this.keys.some((key) => this.each(key).some(hasInterval)) ||
      this.layerKeys.some((key) => this.layers.some((_, l) => hasInterval(this.layerValue(l, key))));
  }
  // What lists[layer][head], in the order of the file, holds for this layer and head.
  of(lists, layer, head) { return lists?.[layer]?.[this.places[layer]?.[head]] ?? null; }
  value(layer, head, key) { return readMeasure(this.layers[layer]?.heads?.[this.places[layer][head]]?.[key]); }
  layerValue(layer, key) { return readMeasure(this.layers[layer]?.[key]); }
  // All heads that have this measure, as {layer, head, mean, median, low, high}.
  each(key) {
    return this.pairs.flatMap(({layer, head}) => {
      const value = this.value(layer, head, key);
      return value ? [{layer, head, ...value}] : [];
    });
  }
  // Mean over the heads of each layer; null where no head has a value.
  layerMeans(key) {
    const entries = this.each(key);
    return this.layers.map((_, l) => mean(entries.filter((e) => e.layer === l).map((e) => e.mean)));
  }
  where({layer, head}) { return `layer ${this.layerIds[layer]} head ${this.headIds[head]}`; }
}

const listOf = (value) => (Array.isArray(value) ? value : []);
const indices = (count) => Array.from({length: count}, (_, i) => i);
const choices = (name, ids) => ids.map((id, i) => ({value: String(i), text: `${name} ${id}`}));
const isSame = (a, b) => Math.abs(a - b) <= 1e-6 * Math.max(1, Math.abs(a), Math.abs(b));

function extremes(entries) {
  const sorted = [...entries].sort((a, b) => a.mean - b.mean);
  return {least: sorted[0], most: sorted.at(-1)};
}

// Ticks that show the numbers of layers or heads, as many as `pixels` hold.
function idTicks(ids, pixels) {
  const step = Math.max(1, Math.ceil(ids.length * 26 / Math.max(26, pixels)));
  const places = indices(ids.length).filter((i) => i % step === 0);
  return {tickmode: "array", tickvals: places, ticktext: places.map((i) => String(ids[i])), tickangle: 0};
}

function layerAxis(report, width, extra = {}) {
  return {title: {text: "Layer"}, range: [-0.6, Math.max(1, report.layers.length) - 0.4], ...idTicks(report.layerIds, width - 120), ...extra};
}

// Beside the picture where there is room, else above it.
function colorBar(width, extra) {
  const place = width < 520 ? {orientation: "h", x: 0.5, y: 1.02, yanchor: "bottom", len: 1} : {};
  return {thickness: 10, outlinewidth: 0, ...place, ...extra};
}

// One measure over all heads in words.
function overviewSentence(report, key) {
  const {name, unit} = measureOf(key);
  const entries = report.each(key);
  const without = report.pairs.length - entries.length;
  const rest = without ? ` ${without} of ${report.pairs.length} heads have no value.` : "";
  const {least, most} = extremes(entries);
  const note = intervalNote(entries);
  if (entries.length === 1) return `${name}: ${formatMeasured(most, unit)} in ${report.where(most)}.${rest}${note}`;
  if (isSame(least.mean, most.mean)) return `${name} is ${formatValue(most.mean, unit)} in all ${entries.length} heads that have it.${rest}${note}`;
  const middle = formatValue(median(entries.map((e) => e.mean)), unit);
  return `${name} is largest in ${report.where(most)}, ${formatMeasured(most, unit)}, and smallest in ${report.where(least)}, ` +
    `${formatValue(least.mean, unit)}; the median head has ${middle}.${rest}${note}`;
}

function measureOptions(report) {
  const known = Object.keys(kMeasures);
  const rank = (key) => (known.includes(key) ? known.indexOf(key) : known.length);
  return [...report.keys].sort((a, b) => rank(a) - rank(b)).map((key) => {
    const {name, group} = measureOf(key);
    return {value: key, text: name, group};
  });
}

const kOverview = {
  id: "overview",
  title: "Every head at a glance",
  about: "Each cell is one head: the mean over windows of the chosen measure. Choosing a cell with the pointer shows that head's map further down.",
  controls: (report) => [{id: "measure", label: "Measure", options: measureOptions(report)}],
  keys: (state) => [state.measure],
  draw(report, state, width) {
    const entries = report.each(state.measure);
    if (!entries.length) return {missing: "no measure has a value for any head."};
    const {name, unit} = measureOf(state.measure);
    const colors = theme();
    const values = entries.map((e) => e.mean);
    const signed = Math.min(...values) < 0;
    const top = Math.max(...values.map(Math.abs));
    const bounded = (unit === "share" || state.measure === "entropy_normalised") && top <= 1;
    const limit = bounded || !top ? 1 : top;
    const interval = intervalColumns(entries);
    const text = (h) => report.layers.map((_, l) => {
      const value = report.value(l, h, state.measure);
      return `${report.where({layer: l, head: h})}<br>${plotText(formatMeasured(value, unit)).replace(" (", "<br>(")}`;
    });
    return {
      traces: [{
        type: "heatmap", x: indices(report.layers.length), y: indices(report.headIds.length),
        z: indices(report.headIds.length).map((h) => report.layers.map((_, l) => report.value(l, h, state.measure)?.mean ?? null)),
        text: indices(report.headIds.length).map(text), hovertemplate: "%{text}<extra></extra>",
        zmin: signed ? -limit : 0, zmax: limit, colorscale: signed ? colors.diverging : colors.sequential,
        xgap: 1.5, ygap: 1.5, colorbar: colorBar(width, {tickformat: unit === "share" ? ".0%" : ""}),
      }],
      layout: {
        xaxis: layerAxis(report, width, {showgrid: false}),
        yaxis: {title: {text: "Head"}, autorange: "reversed", ...idTicks(report.headIds, 400), showgrid: false},
      },
      height: Math.min(560, Math.max(190, (width < 520 ? 150 : 100) + 28 * report.headIds.length)),
      sentence: overviewSentence(report, state.measure),
      label: `Heat map of ${name}, ${report.layers.length} layers by ${report.headIds.length} heads`,
      table: {
        name: state.measure, columns: ["layer", "head", "mean", "median", ...interval.names], note: interval.note,
        rows: entries.map((e) => [report.layerIds[e.layer], report.headIds[e.head], e.mean, e.median, ...interval.cells(e)]),
      },
    };
  },
};

// Dots for the heads and a line for the mean of each layer.
function dotsAndLine(report, key, name, color, place, dash = "solid") {
  const entries = report.each(key);
  const spread = (e) => e.layer + place + (report.headIds.length > 1 ? 0.22 * (e.head / (report.headIds.length - 1) - 0.5) : 0);
  const {unit} = measureOf(key);
  return [
    {
      type: "scatter", mode: "markers", x: entries.map(spread), y: entries.map((e) => e.mean), showlegend: false,
      marker: {color: faded(color, 0.45), size: 5}, name,
      text: entries.map((e) => `${report.where(e)}<br>${name}: ${formatValue(e.mean, unit)}`), hovertemplate: "%{text}<extra></extra>",
    },
    {
      type: "scatter", mode: "lines+markers", x: indices(report.layers.length), y: report.layerMeans(key), name,
      line: {color, width: 2.2, dash}, marker: {color, size: 4}, text: report.layerIds.map((l) => `layer ${l}, mean of heads`),
      hovertemplate: "%{text}<br>%{fullData.name}: %{y:.4~g}<extra></extra>",
    },
  ];
}

function meansTable(report, name, keys) {
  return {
    name, columns: ["layer", "head", ...keys],
    rows: report.pairs.map(({layer, head}) =>
      [report.layerIds[layer], report.headIds[head], ...keys.map((key) => report.value(layer, head, key)?.mean ?? null)]),
  };
}

function sinkSentence(report) {
  const entries = report.each("sink_mass");
  const {most} = extremes(entries);
  const weighted = report.value(most.layer, most.head, "sink_mass_value_weighted");
  const rest = report.value(most.layer, most.head, "row_sum_without_first");
  return `In layer ${report.layerIds[most.layer]} head ${report.headIds[most.head]} puts ${formatMeasured(most, "share")} of its weight on the first token` +
    (weighted ? `; value-weighted it is ${formatShare(weighted.mean)}` : "; its value-weighted share is not known") +
    (rest ? `, and ${formatNumber(rest.mean)} of the row sum is left for all other tokens.` : ".");
}

// The three measures together: over all heads, then in the layer where weight and contribution differ most.
function sinkLayersSentence(report) {
  const [weights, weighted, rest] = ["sink_mass", "sink_mass_value_weighted", "row_sum_without_first"].map((key) => report.layerMeans(key));
  const average = (key) => mean(report.each(key).map((e) => e.mean));
  const left = (sum) => (sum === null ? "" : `; the row sum without it is ${formatNumber(sum)}`);
  const whole = `Over all heads the first token holds ${formatShare(average("sink_mass"))} of the weight`;
  const gaps = indices(weights.length).filter((l) => weights[l] !== null && weighted[l] !== null)
    .sort((a, b) => Math.abs(weights[b] - weighted[b]) - Math.abs(weights[a] - weighted[a]));
  if (!gaps.length) return `${whole}${left(average("row_sum_without_first"))}. The values are not known here, so only the weights are shown. `;
  const l = gaps[0];
  return `${whole}, ${formatShare(average("sink_mass_value_weighted"))} value-weighted${left(average("row_sum_without_first"))}. ` +
    `By layer the two shares differ most in layer ${report.layerIds[l]}: ${formatShare(weights[l])} of the weight, ${formatShare(weighted[l])} value-weighted${left(rest[l])}. `;
}

const kMass = {
  id: "mass",
  title: "Mass on the first token, and what it brings",
  about: "Dots are heads, lines are the mean of a layer's heads. Where the value-weighted line lies far below the other, the first token takes weight but adds little to the output. Such a token is an escape that softmax has already: its rows sum to 1, and yet what they give to all other tokens, the row sum without the first, can be as small as they like.",
  keys: () => ["sink_mass", "sink_mass_value_weighted", "row_sum_without_first"],
  controls: () => [],
  draw(report, state, width) {
    const keys = this.keys().filter((key) => report.keys.includes(key));
    if (!keys.includes("sink_mass")) return {missing: "the mass on the first token was not measured."};
    const colors = theme().series;
    const names = {sink_mass: "weight", sink_mass_value_weighted: "value-weighted", row_sum_without_first: "row sum without it"};
    return {
      traces: keys.flatMap((key, i) => dotsAndLine(report, key, names[key], colors[i], (i - (keys.length - 1) / 2) * 0.24, i === 2 ? "dot" : "solid")),
      layout: {xaxis: layerAxis(report, width), yaxis: {title: {text: "Share of the row"}, rangemode: "tozero"}},
      height: 380,
      sentence: sinkLayersSentence(report) + sinkSentence(report) + intervalNote(report.each("sink_mass")),
      label: "Mass on the first token by layer, as weight and value-weighted",
      table: meansTable(report, "first-token", keys),
    };
  },
};

// The keys of a rank measure and its references at a place ("" or "block_"), those that have values.
function rankKeys(report, place, rank) {
  const has = (keys) => keys.find((key) => report.keys.includes(key));
  return {
    measured: has([place + rank]),
    permuted: place ? has([`block_permuted_${rank}`, `permuted_block_${rank}`]) : has([`permuted_${rank}`]),
    uniform: place ? has([`block_uniform_${rank}`, `uniform_block_${rank}`]) : has([`uniform_${rank}`]),
  };
}

function rankSentence(report, keys) {
  const entries = report.each(keys.measured);
  const average = mean(entries.map((e) => e.mean));
  const parts = [`${measureOf(keys.measured).name}: ${formatNumber(average)} on average over ${entries.length === 1 ? "one head" : `${entries.length} heads`}`];
  const {least, most} = extremes(entries);
  if (entries.length > 1) parts[0] += ` (${formatNumber(least.mean)} in ${report.where(least)} to ${formatNumber(most.mean)} in ${report.where(most)})`;
  const pairs = keys.permuted ? entries.flatMap((e) => {
    const other = report.value(e.layer, e.head, keys.permuted);
    return other ? [[e.mean, other.mean]] : [];
  }) : [];
  if (pairs.length) {
    parts.push(`for the same weights in random places ${formatNumber(mean(pairs.map((p) => p[1])))}`);
    parts.push(`${pairs.filter((p) => p[0] < p[1]).length} of ${pairs.length} heads lie below that reference`);
  }
  const uniform = keys.uniform ? report.each(keys.uniform) : [];
  if (uniform.length) parts.push(`for the uniform map ${formatNumber(mean(uniform.map((e) => e.mean)))}`);
  return parts.join("; ") + ".";
}

const kRank = {
  id: "rank",
  title: "Effective rank beside its references",
  about: "A rank is small only against something. Beside each head's map stand the same weights put in random places of their rows, and the map of equal weights. Judge by the block: the whole map is a triangle and so always of full numerical rank.",
  keys: (state) => (state.rank ? [`${state.place}${state.rank}`] : []),
  controls: (report) => {
    const has = (place, rank) => report.keys.includes(place + rank);
    const ranks = Object.keys(kRanks).filter((rank) => has("", rank) || has("block_", rank));
    const compared = (place) => ranks.some((rank) => rankKeys(report, place, rank).permuted);
    const places = [{value: "block_", text: "Block below the diagonal"}, {value: "", text: "Whole map"}];
    if (!compared("block_") && compared("")) places.reverse();
    return [
      {id: "rank", label: "Rank measure", options: ranks.map((rank) => ({value: rank, text: kRanks[rank][0]}))},
      {id: "place", label: "Of", options: places.filter((p) => ranks.some((rank) => has(p.value, rank)))},
    ];
  },
  draw(report, state, width) {
    const keys = rankKeys(report, state.place ?? "", state.rank);
    if (!keys.measured) return {missing: "no rank was measured for this choice."};
    const colors = theme().series;
    const names = {measured: "measured", permuted: "same weights, random places", uniform: "uniform map"};
    const found = Object.keys(keys).filter((which) => keys[which]);
    return {
      traces: found.flatMap((which, i) => {
        const both = dotsAndLine(report, keys[which], names[which], colors[i], (i - 1) * 0.22, which === "uniform" ? "dot" : "solid");
        return which === "uniform" ? both.slice(1) : both;
      }),
      layout: {xaxis: layerAxis(report, width), yaxis: {title: {text: measureOf(keys.measured).name}, rangemode: "tozero"}},
      height: 380,
      sentence: rankSentence(report, keys),
      label: `${measureOf(keys.measured).name} by layer, beside permuted and uniform maps`,
      table: meansTable(report, keys.measured, found.map((which) => keys[which])),
    };
  },
};

const kLayers = {
  id: "layers",
  title: "How alike the heads of a layer are",
  about: "Bars are 95 % intervals over windows; a single window has none. Heads can have different maps and yet similar outputs, so both are shown.",
  keys: (_, report) => report.layerKeys,
  controls: () => [],
  draw(report, state, width) {
    const keys = report.layerKeys;
    if (!keys.length) return {missing: "no measure of whole layers has a value (a single head has nothing to compare)."};
    const colors = theme().series;
    const valuesOf = (key) => report.layers.map((_, l) => report.layerValue(l, key));
    const interval = intervalColumns(keys.flatMap(valuesOf));
    const say = (key) => {
      const entries = valuesOf(key).flatMap((value, layer) => (value ? [{layer, ...value}] : []));
      const {least, most} = extremes(entries);
      const {name, unit} = measureOf(key);
      if (entries.length === 1) return `${name} is ${formatMeasured(most, unit)} in layer ${report.layerIds[most.layer]}.`;
      return `${name} is largest in layer ${report.layerIds[most.layer]}, ${formatMeasured(most, unit)}, and smallest in layer ${report.layerIds[least.layer]}, ${formatValue(least.mean, unit)}.`;
    };
    return {
      traces: keys.map((key, i) => {
        const values = valuesOf(key);
        return {
          type: "scatter", mode: "lines+markers", name: measureOf(key).name, x: indices(values.length), y: values.map((v) => v?.mean ?? null),
          error_y: {
            visible: interval.names.length > 0, type: "data", symmetric: false, thickness: 1.2, width: 2,
            array: values.map((v) => (hasInterval(v) ? v.high - v.mean : NaN)), arrayminus: values.map((v) => (hasInterval(v) ? v.mean - v.low : NaN)),
          },
          line: {color: colors[i % colors.length], width: 2.2}, marker: {size: 5},
          text: report.layerIds.map((l) => `layer ${l}`), hovertemplate: "%{text}<br>%{fullData.name}: %{y:.4~g}<extra></extra>",
        };
      }),
      layout: {xaxis: layerAxis(report, width), yaxis: {rangemode: "tozero"}},
      height: 340,
      sentence: keys.map(say).join(" ") + intervalNote(keys.flatMap(valuesOf).filter((v) => v)),
      label: `By layer: ${keys.map((key) => measureOf(key).name).join(", ")}`,
      table: {
        name: "layers", columns: ["layer", ...keys.flatMap((key) => [key, ...interval.names.map((name) => `${key} ${name}`)])], note: interval.note,
        rows: report.layerIds.map((id, l) => [id, ...keys.flatMap((key) => {
          const value = report.layerValue(l, key);
          return [value?.mean ?? null, ...interval.cells(value)];
        })]),
      },
    };
  },
};

// The short list at the top; each line only where its measures have values.
function summarySentences(report) {
  const lines = [];
  const has = (key) => report.keys.includes(key);
  if (has("sink_mass")) {
    const average = mean(report.each("sink_mass").map((e) => e.mean));
    lines.push(`${sinkSentence(report)} Over all heads the first token takes ${formatShare(average)} on average.`);
  }
  if (has("entropy_normalised")) {
    const {least, most} = extremes(report.each("entropy_normalised"));
    const sharp = `The sharpest head is ${report.where(least)} (normalised entropy ${formatNumber(least.mean)})`;
    lines.push(report.pairs.length > 1 ? `${sharp}, the most spread ${report.where(most)} (${formatNumber(most.mean)}).` : `${sharp.replace("sharpest head", "only head")}.`);
  }
  for (const place of ["block_", ""]) {
    const keys = rankKeys(report, place, "rank_entropy");
    if (!keys.measured) continue;
    lines.push(rankSentence(report, keys));
    break;
  }
  if (has("induction_mass")) {
    const {most} = extremes(report.each("induction_mass"));
    lines.push(`The strongest induction head is ${report.where(most)}: ${formatMeasured(most, "share")} of its weight, where there is a target, lies on what followed the same token before.`);
  }
  if (has("negative_mass") && extremes(report.each("negative_mass")).most.mean > 0) lines.push(overviewSentence(report, "negative_mass"));
  if (lines.length && !report.hasIntervals) lines.push("One window: no interval. How much these values differ from window to window was not measured.");
  return lines;
}
