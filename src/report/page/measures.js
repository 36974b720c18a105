"use strict";
// What the measures are called, what they mean, and how their values are written in sentences and tables.

const kRanks = {
  rank_entropy: ["Entropy rank", "exp(−Σ p ln p) with p = σ/Σσ: how many equal singular values would have this entropy."],
  rank_entropy_squared: ["Entropy rank of squares", "exp(−Σ p ln p) with p = σ²/Σσ²: as the entropy rank, but large singular values count more."],
  rank_stable: ["Stable rank", "‖A‖²_F / ‖A‖²₂ = Σσ² / σ₁²: the energy of the map in units of its largest direction."],
  rank_r90: ["Singular values for 90 %", "The fewest singular values whose squares sum to 90 % of Σσ²."],
  rank_r99: ["Singular values for 99 %", "The fewest singular values whose squares sum to 99 % of Σσ²."],
};

// key: [name, group, unit, definition]; the unit says how values are written: share (as per cent), nats, rank, number.
const kMeasures = {
  entropy_normalised: ["Entropy, normalised", "Spread of the weight", "fraction", "The entropy of a row's weights |P|/Σ|P|, divided by the logarithm of the number of keys the row can see: 0 is one key, 1 is all keys alike. Mean over rows; row 0 is left out."],
  entropy: ["Entropy", "Spread of the weight", "nats", "−Σ w ln w of a row's weights w = |P|/Σ|P|, in nats. Mean over rows; row 0 is left out."],
  top_mass_1: ["Mass of the largest weight", "Spread of the weight", "share", "The share of a row's |P| that its largest entry holds."],
  top_mass_5: ["Mass of the 5 largest", "Spread of the weight", "share", "The share of a row's |P| that its 5 largest entries hold."],
  top_mass_20: ["Mass of the 20 largest", "Spread of the weight", "share", "The share of a row's |P| that its 20 largest entries hold."],
  sparsity: ["Sparsity", "Spread of the weight", "share", "The share of visible entries of row i with |P| < 1/(10·(i+1)): under a tenth of an equal share."],
  context_rms: ["Context RMS", "Spread of the weight", "fraction", "√(Σ P²) of a row: the size of the mixed values if the values were independent with unit variance."],
  sink_mass: ["Mass on the first token", "First token", "share", "|P_i0| / Σ|P_ij|: the share of a row's weight that lies on token 0."],
  sink_mass_value_weighted: ["Value-weighted mass on the first token", "First token", "share", "‖P_i0 v_0 W_O‖ / Σ_j ‖P_ij v_j W_O‖: the same share after each weight is multiplied by the size of what it brings in. Weight is not contribution: a token with a small value can take much weight and change little."],
  row_sum_without_first: ["Row sum without the first token", "First token", "fraction", "Σ_{j>0} P_ij: what is left for all other tokens."],
  row_sum: ["Row sum", "Signed maps", "fraction", "Σ_j P_ij: 1 for softmax, 1 − λ for a difference of two softmax maps."],
  negative_share: ["Negative entries", "Signed maps", "share", "The share of visible entries that are below 0."],
  negative_mass: ["Negative mass", "Signed maps", "share", "Σ|P⁻| / Σ|P|: the share of the weight that is negative."],
  induction_mass: ["Induction mass", "Content", "share", "The share of a row's weight on keys j whose preceding token is the row's token and which hold the token to predict; rows that have such a key only."],
  cosine_distance: ["Cosine distance of heads", "Layer", "fraction", "1 − cosine of two heads' maps over visible entries, mean over all pairs of heads of the layer: 0 is the same map."],
  cka: ["CKA of head outputs", "Layer", "fraction", "Linear centred kernel alignment (unbiased) of two heads' outputs, mean over pairs: 1 is the same up to rotation and scale, 0 is unrelated; the estimate can be a little negative."],
  accuracy: ["Accuracy", "Needles", "share", "Questions answered right / questions asked. An answer is right if its first whole run of digits is the number. Intervals are 95 % Wilson intervals."],
  attention_on_answer: ["Attention on the answer", "Needles", "share", "Σ|P| on the tokens of the number / Σ|P| in the row that predicts the number's first digit."],
  loss_nats: ["Loss", "Prediction", "nats", "Mean −ln p of the tokens of the text, in nats a token; its exponential is the perplexity. Comparable between models of one vocabulary alone."],
  bits_per_byte: ["Bits a byte", "Prediction", "number", "Σ −log₂ p over the tokens of the text, divided by its bytes: comparable between vocabularies."],
  token_error: ["Token errors", "Prediction", "share", "The share of tokens that are not the likeliest."],
  needle_accuracy: ["Needles found", "Needles", "share", "Questions answered right / questions asked, a prompt at a time."],
  needle_attention: ["Attention on the needle", "Needles", "share", "Σ|P| on the tokens of the number / Σ|P| in the row that predicts its first digit, mean over layers and heads."],
  choice_accuracy: ["Choices right", "Questions", "share", "Questions whose answer is the likeliest of the choices, by log-likelihood."],
  choice_accuracy_per_byte: ["Choices right, per byte", "Questions", "share", "The same by log-likelihood divided by the bytes of the choice."],
  last_word_accuracy: ["Last words foretold", "Questions", "share", "Texts each token of whose last word is the likeliest."],
  answer_nll_nats: ["NLL of the answer", "Questions", "nats", "−ln p of the whole answer, in nats."],
  lambda: ["λ", "Layer", "fraction", "The weight of the noise map that is taken off the positive map."],
};

const kPlaces = {
  "": ["", "Rank, whole map", "Of the whole map (a triangle, so its full numerical rank is N)."],
  "block_": [" of the block", "Rank, block", "Of the block below the diagonal: evenly spaced rows of the last quarter, columns of the first three quarters, where every key is visible."],
  "uniform_": [", uniform map", "Rank, references", "Of the map whose rows are equal over the visible keys."],
  "permuted_": [", permuted map", "Rank, references", "Of the same map with the visible entries of each row in random places (equal entropy)."],
  "block_uniform_": [" of the block, uniform map", "Rank, references", "Of the block of the uniform map."],
  "block_permuted_": [" of the block, permuted map", "Rank, references", "Of the block of the permuted map."],
};

// What there is to say about a measure of this key: {name, group, unit, text}. Unknown keys are described by themselves.
function measureOf(key) {
  const part = /^(a1|a2)_/.exec(key);
  if (part) {
    const inner = measureOf(key.slice(3));
    const whose = part[1] === "a1" ? "positive map" : "noise map";
    return {...inner, name: `${inner.name} (${whose})`, group: `Parts: ${whose}`};
  }
  if (key in kMeasures) {
    const [name, group, unit, text] = kMeasures[key];
    return {name, group, unit, text};
  }
  for (const [rank, [name, text]] of Object.entries(kRanks)) {
    if (!key.endsWith(rank)) continue;
    const place = kPlaces[key.slice(0, key.length - rank.length)];
    if (place) return {name: name + place[0], group: place[1], unit: "rank", text: `${text} ${place[2]}`};
  }
  return {name: key.replaceAll("_", " "), group: "Other", unit: "number", text: "No definition is known to this page."};
}

// A number for people: about three significant digits (and `more`), no power of ten between 1e-4 and 1e6.
function formatNumber(x, more = 0) {
  if (!Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) {
    const [digits, power] = x.toExponential(2 + more).split("e");
    const raised = power.replace("+", "").replace(/[-0-9]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
    return `${digits.replace("-", "−")}·10${raised}`;
  }
  if (size === 0) return "0";
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.01 ? 3 : 2 - Math.floor(Math.log10(size));
  return x.toFixed(digits + more).replace("-", "−");
}

function formatShare(x, more = 0) {
  if (!Number.isFinite(x)) return "–";
  const percent = 100 * x;
  const size = Math.abs(percent);
  const write = (digits) => `${percent.toFixed(digits + more).replace("-", "−")}\u00a0%`;
  if (size >= 1e6) return `${formatNumber(percent)}\u00a0%`;
  if (size !== 0 && size < 0.01 && !more) return percent < 0 ? "about 0\u00a0%" : "under 0.01\u00a0%";
  if (size > 99.9 && size < 100 && !more) return percent < 0 ? "about −100\u00a0%" : "over 99.9\u00a0%";
  if (size > 99 && size < 100) return write(1);
  return write(size >= 9.95 || size === 0 ? 0 : size >= 0.095 ? 1 : 2);
}

function formatValue(x, unit, more = 0) {
  if (unit === "share") return formatShare(x, more);
  return unit === "nats" ? `${formatNumber(x, more)}\u00a0nats` : formatNumber(x, more);
}

// "0.43 (95 % interval 0.40 to 0.45)"; without the interval where there is none, with more digits where it is narrow.
function formatMeasured(value, unit) {
  if (!value) return "no value";
  const text = formatValue(value.mean, unit);
  if (!hasInterval(value)) return text;
  const more = formatValue(value.low, unit) === formatValue(value.high, unit) ? 2 : 0;
  const [low, high] = [formatValue(value.low, unit, more), formatValue(value.high, unit, more)];
  if (low === high) return `${text} (the same in every ${intervalUnit})`;
  const sign = unit === "share" ? "\u00a0%" : unit === "nats" ? "\u00a0nats" : "";
  return `${text} (95\u00a0% interval ${low.endsWith(sign) && high.endsWith(sign) ? low.slice(0, low.length - sign.length) : low} to ${high})`;
}

// A stored measure as {mean, median, low, high}, each a finite number or null; null where nothing was measured.
function readMeasure(stored) {
  const finite = (x) => (typeof x === "number" && Number.isFinite(x) ? x : null);
  if (stored === null || typeof stored !== "object" || Array.isArray(stored)) return null;
  const mean = finite(stored.mean);
  if (mean === null) return null;
  return {mean, median: finite(stored.median), low: finite(stored.low), high: finite(stored.high)};
}

// What intervals are taken over: one window (or sample) gives a mean, but nothing to take an interval from.
let intervalUnit = "window";
const hasInterval = (value) => value !== null && value.low !== null && value.high !== null;

// For the end of a sentence about these values.
function intervalNote(values) {
  return values.length && !values.some(hasInterval) ? ` One ${intervalUnit}: no interval.` : "";
}

// The columns of a table that show the intervals of these values, if they have any; else what its caption says.
function intervalColumns(values) {
  if (!values.some(hasInterval)) return {names: [], cells: () => [], note: `one ${intervalUnit}: no interval`};
  return {names: ["interval low", "interval high"], cells: (value) => [value?.low ?? null, value?.high ?? null], note: ""};
}

function mean(numbers) {
  return numbers.length ? numbers.reduce((sum, x) => sum + x, 0) / numbers.length : null;
}

function median(numbers) {
  if (!numbers.length) return null;
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// Token text for reading: blanks and control characters become visible signs; never longer than `limit` characters.
function showToken(text, limit = 24) {
  const signs = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽", "\u007f": "␡"};
  const shown = [...String(text ?? "")].map((c) => {
    const code = c.codePointAt(0);
    if (c in signs) return signs[c];
    if (code < 32) return String.fromCodePoint(0x2400 + code);
    return /[\u0080-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/.test(c) ? `‹${code.toString(16)}›` : c;
  });
  if (!shown.length) return "∅";
  return shown.length > limit ? shown.slice(0, limit - 1).join("") + "…" : shown.join("");
}

// Plotly reads a few tags and entities in its texts: this keeps any text as it is.
function plotText(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
