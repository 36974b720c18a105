"use strict";
// The pictures that need the extras: distributions, one attention map, singular values.

const kHistograms = {
  entropy_normalised: {name: "Normalised entropy of rows", one: "rows", axis: "Entropy / log(visible keys)", show: formatNumber},
  log10_weight: {name: "Size of weights", one: "weights", axis: "log₁₀ |weight|", show: (x) => `10^${formatNumber(x)}`},
};

// The sum of the count lists that the choice of layer and head picks ("" is all).
function addCounts(report, histogram, layer, head, bins) {
  const total = new Array(bins).fill(0);
  for (const pair of report.pairs) {
    if ((layer !== "" && Number(layer) !== pair.layer) || (head !== "" && Number(head) !== pair.head)) continue;
    (report.of(histogram.counts, pair.layer, pair.head) ?? []).slice(0, bins).forEach((n, i) => { total[i] += Number.isFinite(n) ? n : 0; });
  }
  return total;
}

// Where the running sum of counts passes half, linear inside the bin.
function histogramMedian(edges, counts) {
  const half = counts.reduce((sum, n) => sum + n, 0) / 2;
  let sum = 0;
  for (const [i, n] of counts.entries()) {
    if (n > 0 && sum + n >= half) return edges[i] + (edges[i + 1] - edges[i]) * (half - sum) / n;
    sum += n;
  }
  return null;
}

const kDistributions = {
  id: "distributions",
  title: "Distributions",
  about: "Counts over the rows (or visible weights) of all windows. With all layers chosen, each column is one layer and colour is the share of its rows; with one layer, bars.",
  keys: () => ["entropy_normalised"],
  controls: (report) => [
    {id: "kind", label: "Distribution of", options: Object.keys(kHistograms).filter((kind) => report.extras.histograms?.[kind]).map((kind) => ({value: kind, text: kHistograms[kind].name}))},
    {id: "layer", label: "Layer", options: [{value: "", text: "All layers"}, ...choices("Layer", report.layerIds)]},
    {id: "head", label: "Head", options: [{value: "", text: "All heads"}, ...choices("Head", report.headIds)]},
  ],
  draw(report, state, width) {
    const histogram = report.extras.histograms?.[state.kind];
    if (!histogram?.edges?.length) return {missing: "these results hold no histograms."};
    const {name, one, axis, show} = kHistograms[state.kind];
    const edges = histogram.edges;
    const bins = edges.length - 1;
    const middles = indices(bins).map((i) => (edges[i] + edges[i + 1]) / 2);
    const sum = (counts) => counts.reduce((a, b) => a + b, 0);
    const chosen = addCounts(report, histogram, state.layer, state.head, bins);
    const total = sum(chosen);
    if (!total) return {missing: "this layer and head have no counts."};
    const whose = `${state.layer === "" ? "all layers" : `layer ${report.layerIds[state.layer]}`}, ${state.head === "" ? "all heads" : `head ${report.headIds[state.head]}`}`;
    const peak = chosen.indexOf(Math.max(...chosen));
    const shared = {
      height: 360,
      sentence: `In ${whose}, half of the ${formatCount(total)} ${one} lie below ${show(histogramMedian(edges, chosen))}; the fullest bin, ` +
        `${show(edges[peak])} to ${show(edges[peak + 1])}, holds ${formatShare(chosen[peak] / total)} of them.`,
      label: `${name}, ${whose}`,
    };
    const colors = theme();
    if (state.layer !== "") {
      return {
        ...shared,
        traces: [{type: "bar", x: middles, y: chosen.map((n) => n / total), marker: {color: colors.series[0]}, hovertemplate: "around %{x:.3~g}: %{y:.1%}<extra></extra>"}],
        layout: {xaxis: {title: {text: axis}}, yaxis: {title: {text: `Share of ${one}`}, tickformat: ".0%", rangemode: "tozero"}, bargap: 0.06},
        table: {name: `histogram-${state.kind}`, source: kOwnData, columns: ["from", "to", "count", "share"], rows: chosen.map((n, i) => [edges[i], edges[i + 1], n, n / total])},
      };
    }
    const columns = report.layers.map((_, l) => addCounts(report, histogram, String(l), state.head, bins));
    return {
      ...shared,
      traces: [{
        type: "heatmap", x: indices(columns.length), y: middles, colorscale: colors.sequential, zmin: 0,
        z: indices(bins).map((i) => columns.map((counts) => (sum(counts) ? counts[i] / sum(counts) : null))),
        text: middles.map(() => report.layerIds.map((l) => `layer ${l}`)), hovertemplate: "%{text}<br>around %{y:.3~g}: %{z:.1%}<extra></extra>", colorbar: colorBar(width, {tickformat: ".0%"}),
      }],
      layout: {xaxis: layerAxis(report, width, {showgrid: false}), yaxis: {title: {text: axis}, showgrid: false}},
      table: {
        name: `histogram-${state.kind}`, source: kOwnData, columns: ["from", "to", ...report.layerIds.map((l) => `layer ${l}`)],
        rows: indices(bins).map((i) => [edges[i], edges[i + 1], ...columns.map((counts) => counts[i])]),
      },
    };
  },
};

function formatCount(n) {
  return n < 1e15 ? Math.round(n).toLocaleString("en") : formatNumber(n);
}

const kSpectra = {
  id: "spectra",
  title: "Singular values",
  about: "The largest singular values of the block below the diagonal (of the whole map in a layer whose window leaves no block), divided by the first, on a logarithmic axis; mean over windows. A map that a few patterns explain falls fast, a map without pattern slowly.",
  keys: () => ["block_rank_entropy", "block_rank_stable"],
  controls: (report) => [
    {id: "layer", label: "Layer", options: choices("Layer", report.layerIds)},
    {id: "head", label: "Highlighted head", options: choices("Head", report.headIds)},
  ],
  start: (report) => ({layer: String(report.layers.length >> 1)}),
  draw(report, state, width) {
    if (!Array.isArray(report.extras.spectra)) return {missing: "these results hold no singular values."};
    const layer = report.layerIds[state.layer];
    const lists = report.headIds.map((_, h) => report.of(report.extras.spectra, Number(state.layer), h) ?? []);
    if (!lists.some((list) => list.length)) return {missing: `layer ${layer} has no singular values.`};
    const colors = theme();
    const chosen = Number(state.head);
    const order = indices(lists.length).filter((h) => lists[h].length && h !== chosen);
    if (lists[chosen].length) order.push(chosen);
    return {
      traces: order.map((h) => ({
        type: "scatter", mode: lists[h].length > 1 ? "lines" : "markers", x: lists[h].map((_, k) => k + 1), y: lists[h].map((x) => (x > 0 ? x : null)), name: `head ${report.headIds[h]}`,
        line: {color: h === chosen ? colors.series[0] : faded(colors.soft, 0.45), width: h === chosen ? 2.6 : 1.3}, showlegend: false,
        hovertemplate: "%{fullData.name}<br>σ of rank %{x}: %{y:.3~g}<extra></extra>",
      })),
      layout: {xaxis: {title: {text: "k"}, rangemode: "tozero"}, yaxis: {title: {text: "σₖ / σ₁"}, type: "log", exponentformat: "power", dtick: 1}},
      height: 360,
      sentence: spectrumSentence(lists[chosen], layer, report.headIds[chosen]),
      label: `Singular values of the heads of layer ${layer}`,
      table: {
        name: `spectra-layer-${layer}`, source: kOwnData, columns: ["k", ...report.headIds.map((h) => `head ${h}`)],
        rows: indices(Math.max(...lists.map((list) => list.length))).map((k) => [k + 1, ...lists.map((list) => list[k] ?? null)]),
      },
    };
  },
};

function spectrumSentence(values, layer, head) {
  if (!values.length) return `Head ${head} of layer ${layer} has no singular values.`;
  if (!(values[0] > 0)) return `In layer ${layer} head ${head} has no weights here: all its singular values are 0.`;
  if (values.length === 1) return `In layer ${layer} head ${head} has a single singular value.`;
  const below = values.findIndex((x) => x < 0.01);
  return `In layer ${layer} the second singular value of head ${head} is ${formatShare(values[1])} of the first; ` +
    (below < 0 ? `the first ${values.length} are all at least 1 % of it.` : `number ${below + 1} is the first under 1 % of it.`);
}

// Bytes of a base64 text.
function fromBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

// The weights of one excerpt, [query][key], signed; null if this head has none.
function readMap(report, layer, head) {
  const {excerpt} = report.extras;
  const text = report.of(excerpt?.maps, layer, head);
  const size = excerpt?.size;
  if (typeof text !== "string" || !Number.isInteger(size) || size < 1) return null;
  const codes = fromBase64(text);
  if (codes.length < size * (size + 1) / 2) return null;
  const bits = report.of(excerpt.signs, layer, head);
  const signs = typeof bits === "string" ? fromBase64(bits) : null;
  const weight = (k) => (codes[k] / 255) ** 2 * (signs && signs[k >> 3] >> (k & 7) & 1 ? -1 : 1);
  return indices(size).map((i) => indices(i + 1).map((j) => weight(i * (i + 1) / 2 + j)));
}

// Ticks for the tokens from `first` to `last`, as many as fit into `pixels` with 13 pixels each.
function tokenTicks(tokens, first, last, pixels) {
  const step = Math.max(1, Math.ceil((last - first + 1) * 13 / Math.max(13, pixels)));
  const values = indices(tokens.length).filter((i) => i >= first && i <= last && (i - Math.max(0, first)) % step === 0);
  return {tickmode: "array", tickvals: values, ticktext: values.map((i) => plotText(showToken(tokens[i], 10)))};
}

function mapSentence(map, tokens, layer, head) {
  const rows = map.slice(1);
  if (!rows.length) return "The excerpt holds one token, which can only look at itself.";
  const largest = rows.map((row) => row.reduce((best, w, j) => (Math.abs(w) > Math.abs(row[best]) ? j : best), 0));
  const onFirst = largest.filter((j) => j === 0).length;
  const onSelf = largest.filter((j, i) => j === i + 1).length;
  const before = largest.filter((j, i) => j === i && j > 0).length;
  let text = `In layer ${layer} head ${head}, ${onFirst} of ${rows.length} tokens give their largest weight to the first token; of the others, ` +
    `${before} to the token just before them and ${onSelf} to themselves.`;
  let best = null;
  rows.forEach((row, i) => row.forEach((w, j) => {
    if (j > 0 && j <= i && (!best || Math.abs(w) > Math.abs(best.w))) best = {w, i: i + 1, j};
  }));
  if (best && best.w !== 0) {
    text += ` Between two different tokens, neither the first, the largest weight is ${formatShare(best.w)}: ` +
      `from ${best.i} “${showToken(tokens[best.i])}” to ${best.j} “${showToken(tokens[best.j])}”.`;
  }
  return text;
}

const kMap = {
  id: "map",
  title: "One attention map",
  about: "The first tokens of the first window. A row is the token that looks, a column the token looked at. Colour follows the square root of the weight, so that small weights can be seen; the stored weights have 8 bits (error at most 0.4 % of a row). Blanks are shown as ␣, line ends as ↵. Drag over the picture to enlarge a part, or set the tokens to show.",
  keys: () => [],
  controls: (report) => [
    {id: "layer", label: "Layer", options: choices("Layer", report.layerIds)},
    {id: "head", label: "Head", options: choices("Head", report.headIds)},
    {id: "from", label: "From token", number: [0, Math.max(0, (report.extras.excerpt?.size ?? 1) - 1)]},
    {id: "to", label: "To token", number: [0, Math.max(0, (report.extras.excerpt?.size ?? 1) - 1)]},
    {id: "whole", label: "Zoom", button: "Whole map", sets: {from: 0, to: Math.max(0, (report.extras.excerpt?.size ?? 1) - 1)}},
  ],
  start(report) {
    const entries = report.each("induction_mass").length ? report.each("induction_mass") : report.each("entropy_normalised");
    const shown = entries.length ? extremes(entries).most : {layer: 0, head: 0};
    return {layer: String(shown.layer), head: String(shown.head), from: 0, to: Math.max(0, (report.extras.excerpt?.size ?? 1) - 1)};
  },
  draw(report, state, width) {
    if (!report.extras.excerpt) return {missing: "these results hold no excerpts of maps."};
    const [layer, head] = [report.layerIds[state.layer], report.headIds[state.head]];
    const map = readMap(report, Number(state.layer), Number(state.head));
    if (!map) return {missing: `layer ${layer} head ${head} has no excerpt.`};
    const size = map.length;
    const tokens = indices(size).map((i) => report.extras.tokens?.[i] ?? `#${i}`);
    const [from, to] = [Math.min(state.from, state.to), Math.max(state.from, state.to)];
    const colors = theme();
    const signed = map.some((row) => row.some((w) => w < 0));
    const names = tokens.map((token) => plotText(showToken(token)));
    const narrow = width < 520;
    const marks = signed && narrow ? [0.1, 0.5, 1] : [0.01, 0.1, 0.25, 0.5, 1];
    const height = Math.round(Math.min(780, narrow ? width + 60 : width * 0.92));
    const room = {x: narrow ? 90 : 150, y: narrow ? 170 : 150};
    const all = indices(size);
    return {
      traces: [{
        type: "heatmap", x: all, y: all, zmin: signed ? -1 : 0, zmax: 1, colorscale: signed ? colors.diverging : colors.sequential,
        z: map.map((row) => all.map((j) => (j < row.length ? Math.sign(row[j]) * Math.sqrt(Math.abs(row[j])) : null))), hoverongaps: false,
        text: map.map((row, i) => row.map((w, j) => `${i} ‘${names[i]}’ looks at<br>${j} ‘${names[j]}’: <b>${formatShare(w)}</b>`)),
        hovertemplate: "%{text}<extra></extra>",
        colorbar: colorBar(width, {
          tickmode: "array", tickvals: [...(signed ? marks.map((m) => -Math.sqrt(m)).reverse() : []), 0, ...marks.map(Math.sqrt)],
          ticktext: [...(signed ? marks.map((m) => `−${100 * m} %`).reverse() : []), "0", ...marks.map((m) => `${100 * m} %`)],
        }),
      }],
      layout: {
        xaxis: {range: [from - 0.5, to + 0.5], showgrid: false, tickangle: -90, ...tokenTicks(tokens, from, to, width - room.x), title: narrow ? {} : {text: "Token looked at", standoff: 10}},
        yaxis: {range: [to + 0.5, from - 0.5], showgrid: false, ...tokenTicks(tokens, from, to, height - room.y), title: narrow ? {} : {text: "Token that looks", standoff: 14}},
        dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      },
      height,
      // After a zoom with the pointer the labels are chosen anew for what is visible.
      ticks: (x, y) => ({
        xaxis: tokenTicks(tokens, Math.ceil(Math.min(...x)), Math.floor(Math.max(...x)), width - room.x),
        yaxis: tokenTicks(tokens, Math.ceil(Math.min(...y)), Math.floor(Math.max(...y)), height - room.y),
      }),
      sentence: mapSentence(map, tokens, layer, head),
      label: `Attention map of layer ${layer} head ${head}, ${size} tokens`,
      table: {
        name: `map-layer-${layer}-head-${head}`, source: kOwnData, columns: ["query", "query token", "key", "key token", "weight"],
        rows: map.flatMap((row, i) => row.map((w, j) => [i, showToken(tokens[i]), j, showToken(tokens[j]), w])),
        most: 3000,
      },
    };
  },
};

// A picture of one model on a page of several: the same, with a choice of the model. Layers and heads go by their place
// in the model that has most of them.
function ofModels(picture, more) {
  const reports = (report) => (report.perModel ??= listOf(report.extras.models).filter((model) => typeof model?.name === "string").map((model) => new Report({results: {layers: model.layers}, extras: model})));
  const widest = (report) => reports(report).reduce((best, each) => (each.layerIds.length * each.headIds.length > best.layerIds.length * best.headIds.length ? each : best), reports(report)[0] ?? report);
  // The first that subtracts one map from another, if any does.
  const first = (report) => Math.max(0, reports(report).findIndex(({extras}) => listOf(extras.excerpt?.signs).some((layer) => listOf(layer).some(Boolean))));
  return {
    ...picture, ...more,
    controls: (report) => [{id: "model", label: "Model", options: reports(report).map(({extras}, i) => ({value: String(i), text: extras.name}))}, ...picture.controls(widest(report))],
    start: (report) => ({model: String(first(report)), ...picture.start(reports(report)[first(report)] ?? report)}),
    draw(report, state, width) {
      const model = reports(report)[state.model];
      if (!model) return {missing: "the models of this page were not at hand when it was written."};
      const {name} = model.extras;
      if (!(state.layer in model.layerIds) || !(state.head in model.headIds)) return {missing: `${name} has no such layer or head.`};
      const drawn = picture.draw(model, state, width);
      return drawn.missing ? {missing: `of ${name}, ${drawn.missing}`} : {...drawn, sentence: `${name}. ${drawn.sentence}`, label: `${name}: ${drawn.label}`, table: {...drawn.table, name: `${drawn.table.name}-${name.replace(/[^\w-]+/g, "-")}`}};
    },
  };
}
