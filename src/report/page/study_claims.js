"use strict";
// The claims of a study: all of them beside their thresholds, and one with everything that stands behind its verdict.

const kVerdicts = {supported: "supported", refuted: "refuted", undecided: "undecided", identity: "true by algebra", not_applicable: "not applicable", null: "not measured"};
const kPartLetters = "abcdefgh";
const verdictText = (verdict) => kVerdicts[verdict] ?? String(verdict);

// A part of a claim with the distance of its numbers from the threshold, claimed side positive. Of a band it is that
// from the end nearer to the estimate, and `width` how far the other end lies beyond.
function partEntry(claim, part, name, verdict) {
  const [low, high] = Array.isArray(part.threshold) ? part.threshold : [part.threshold, part.threshold];
  const inside = part.direction === "inside";
  const fromHigh = part.direction === "below" || (inside && part.mean - low > high - part.mean);
  const distance = (x) => (Number.isFinite(x) && Number.isFinite(low) ? (fromHigh ? high - x : x - low) : null);
  return {claim, part, name, verdict, distance, width: inside ? high - low : null};
}

// One entry a part of each claim.
function claimParts(report) {
  return studyClaims(report).flatMap((claim) => claim.parts.map((part, place) => {
    const many = claim.parts.length > 1;
    return {...partEntry(claim, part, `${claim.id}${many ? kPartLetters[place] : ""}`, many ? part.verdict : claim.verdict), first: place === 0};
  }));
}

// To a claim's own section.
const claimAddress = ({id}) => `claim-${id}`;
const claimLink = (claim, text) => ({to: `#${claimAddress(claim)}`, text, title: String(claim.statement)});

// The pictures that bear on a claim; any of its numbers can be seen by member.
const picturesOf = (claim, report) => [...sectionsOf(kStudyPage, report).filter((picture) => picture.claims?.includes(claim.id)), kStudyMeasures];

// To these pictures; to the one that can show any number, with the number that a part is judged by.
function pictureLinks(claim, part, report, textOf = ({title}) => title) {
  const follow = () => {
    const [group, measure] = [`${part.track}, ${part.size}`, part.measure];
    if (runsOf(report, group).length && runMeasures(report).includes(measure)) views.find(({picture}) => picture === kStudyMeasures).set({group, measure}).catch(note);
  };
  return picturesOf(claim, report).map((picture) => ({to: `#${picture.id}`, text: textOf(picture), ...(picture === kStudyMeasures && part ? {follow} : {})}));
}

const thresholdText = (threshold) => (Array.isArray(threshold) ? threshold.map((x) => formatNumber(x)).join(" to ") : formatNumber(threshold));

function countVerdicts(claims) {
  const counts = distinct(claims.map((claim) => String(claim.verdict))).map((verdict) => [claims.filter((claim) => String(claim.verdict) === verdict).length, verdictText(verdict)]);
  return counts.map(([count, text]) => `${count} ${text}`).join(", ");
}

function claimsSentence(report) {
  const claims = studyClaims(report);
  return claims.length ? `Of ${countText(claims.length, "claim")}: ${countVerdicts(claims)}.` : "";
}

const kClaimLines = "The mark is the estimate, the bar its 95 % interval, the light band the noise floor that the mark must leave; right of the line in the middle is the claimed side of the threshold. Where the threshold is the floor itself, or the number a count, there is no band; a thin second line is the other end of a claimed range. Each line has its own scale, so that lengths can be compared within a line alone: the table has the numbers.";
const kClaimTerms = [
  ["Noise floor", "√(2/n) × SD of the measure over the n seeds of softmax: about what two means of n runs differ by when nothing differs."],
  ["Interval", "Student's t over seeds that pair the runs; with fewer than three seeds a bootstrap over windows nested in texts, and no verdict."],
  ["Detectable", "How far beyond the threshold the truth must lie for 80 % of such studies to find it."],
  ["Would decide", "The fewest seeds that would decide an undecided part if mean and scatter stayed as they are; empty above 200."],
];

// Entries beside their thresholds, a line each.
function claimLines(entries, labels) {
  const colors = theme();
  const shown = entries.map((entry) => {
    const [middle, ...ends] = ["mean", "low", "high"].map((key) => entry.distance(entry.part[key]));
    const floor = entry.part.margin ?? entry.part.floor ?? 0;
    const size = Math.max(...[middle, ...ends].map((x) => Math.abs(x ?? 0)), floor) || 1;
    const scaled = (x) => (x === null ? null : x / size);
    return {...entry, middle: scaled(middle), ends: ends.map(scaled).sort((a, b) => a - b), floor: floor / size, far: scaled(entry.width)};
  });
  const rows = indices(shown.length);
  const color = {supported: colors.series[3], refuted: colors.series[1], undecided: colors.series[2]};
  const mark = (verdict) => ({color: color[verdict] ?? colors.soft, symbol: {supported: "circle", refuted: "x", undecided: "circle-open"}[verdict] ?? "square", size: 9});
  const marks = shown.map(({verdict}) => mark(verdict));
  const hover = shown.map(({claim, part, verdict}) => `${plotText(claim.statement)}<br>${plotText(part.measure.replaceAll("_", " "))}: ${formatNumber(part.mean)} (${formatNumber(part.low)} to ${formatNumber(part.high)})<br>threshold ${thresholdText(part.threshold)}, ${verdictText(verdict)}`);
  const line = (x, y, style) => ({type: "scatter", mode: "lines", x, y, line: style, hoverinfo: "skip", showlegend: false});
  const key = (marker, name) => ({type: "scatter", mode: "markers", x: [null], y: [null], marker, name});
  return {
    traces: [
      ...shown.flatMap(({floor}, i) => (floor > 0 ? [line([-floor, floor, null], [i, i, null], {color: colors.line, width: 14})] : [])),
      ...shown.flatMap(({far}, i) => (far !== null && far <= 1.1 ? [line([far, far], [i - 0.35, i + 0.35], {color: colors.ink, width: 1})] : [])),
      ...shown.flatMap(({ends, verdict}, i) => (ends.every((x) => x !== null) ? [line([...ends, null], [i, i, null], {color: color[verdict] ?? colors.soft, width: 2.5})] : [])),
      ...distinct(shown.filter(({middle}) => middle !== null).map(({verdict}) => verdict)).map((verdict) => key(mark(verdict), verdictText(verdict))),
      ...(shown.some(({floor}) => floor > 0) ? [key({color: colors.line, symbol: "square", size: 13}, "noise floor")] : []),
      {
        type: "scatter", mode: "markers", x: shown.map(({middle}) => middle), y: rows, text: hover, hovertemplate: "%{text}<extra></extra>", showlegend: false,
        marker: {size: 9, color: marks.map((each) => each.color), symbol: marks.map((each) => each.symbol)},
      },
    ],
    layout: {
      xaxis: {title: {text: "other side ← → claimed side"}, range: [-1.1, 1.1], zeroline: true, zerolinecolor: colors.ink, showticklabels: false, showgrid: false},
      yaxis: {range: [shown.length - 0.4, -0.6], tickmode: "array", tickvals: rows, ticktext: labels, showgrid: false},
    },
    height: 120 + 24 * shown.length,
  };
}

// What the claims' file says of a part and what the runs gave, by column.
const kPartColumns = ["measure", "unit", "comparison", "of", "against", "reference", "track", "size", "side", "threshold", "estimate", "low", "high", "floor", "detectable", "claimed effect", "seeds", "would decide", "verdict of the part", "note"];
const partCells = ({part, claim}) => [part.measure, part.unit ?? null, part.comparison, part.of, part.against ?? null, part.reference ?? null, part.track, part.size ?? null, part.direction,
  Array.isArray(part.threshold) ? thresholdText(part.threshold) : part.threshold, part.mean, part.low, part.high, part.floor, part.detectable, part.effect, part.seeds, part.seeds_needed ?? null, verdictText(part.verdict), [part.note, claim.note].filter(Boolean).join(" ")];

const kStudyClaims = {
  id: "claims",
  title: "What is claimed, and what we measure",
  about: `A line a claim, or a part of one. ${kClaimLines} A claim is supported if the whole bar lies on the claimed side and the mark beyond the floor, refuted if the same holds on the other side.`,
  terms: kClaimTerms,
  keys: () => [],
  controls: () => [],
  draw(report, state, width) {
    const parts = claimParts(report);
    if (!parts.length) return {missing: "no claims were judged."};
    return {
      ...claimLines(parts, parts.map(({claim, name, first}) => (width < 520 || !first ? name : `${plotText(claim.name ?? "")} ${name}`))),
      sentence: claimsSentence(report),
      label: `Estimates of ${countText(parts.length, "part")} of claims beside their thresholds`,
      table: {
        name: "claims", links: {claim: (row) => [claimLink(parts[row].claim, String(parts[row].claim.id))], pictures: (row) => pictureLinks(parts[row].claim, parts[row].part, report, ({id}) => id)}, columns: ["claim", "source", "statement", "verdict", "pictures", "part", ...kPartColumns],
        rows: parts.map((entry) => [entry.claim.id, entry.claim.source, entry.claim.statement, verdictText(entry.claim.verdict), picturesOf(entry.claim, report).map(({id}) => id).join(" "), entry.name, ...partCells(entry)]),
      },
    };
  },
};

// "< 0.3", "2 to 5", "> floor" where nothing tells how high that is.
function thresholdSide({threshold, direction}) {
  if (Array.isArray(threshold)) return thresholdText(threshold);
  return `${direction === "below" ? "<" : ">"} ${Number.isFinite(threshold) ? formatNumber(threshold) : "floor"}`;
}

// The part that a claim's verdict is that of, the first of these; of an identity the first.
const decidingPart = ({parts, decides}) => (parts[decides] ? decides : 0);

// A line a claim, with the part that decides it: what the page of a study begins with.
function claimsFirst(report) {
  const claims = studyClaims(report).filter(({parts}) => parts.length);
  if (!claims.length) return null;
  const row = (claim) => {
    const {id, name, statement, verdict, parts} = claim, at = decidingPart(claim), part = parts[at];
    return [
      `${id} ${name ?? ""}`.trim(), verdictText(verdict), statement, [String(part.measure).replaceAll("_", " "), part.comparison, parts.length > 1 && `part ${kPartLetters[at]}`].filter(Boolean).join(", "),
      thresholdSide(part), part.mean, part.low, part.high, part.seeds, picturesOf({id}, report).map((picture) => picture.id).join(" "),
    ];
  };
  const rows = claims.map(row);
  return {
    id: "verdicts", title: "Every claim and its verdict", open: "The table of claims",
    sentence: "The name of a claim leads to all that was asked of it, its pictures to where it can be seen. The numbers are those of the part that decides it.",
    table: {
      name: "verdicts", columns: ["claim", "verdict", "what is claimed", "measured by", "claimed", "estimate", "low", "high", "seeds", "pictures"], rows,
      links: {claim: (r) => [claimLink(claims[r], rows[r][0])], pictures: (r) => pictureLinks(claims[r], claims[r].parts[decidingPart(claims[r])], report, ({id}) => id)},
    },
  };
}

// Of whom a part is, and of which number: "diff_v1 and softmax: loss nats".
function partText({of, against, measure, size}, withSize) {
  return `${against && against !== of ? `${of} and ${against}` : of}${withSize ? `, ${size}` : ""}: ${String(measure).replaceAll("_", " ")}`;
}

// All that was asked of a claim.
const claimSection = (claim) => ({
  id: claimAddress(claim),
  title: `Claim ${claim.id}: ${claim.name ?? ""}`,
  about: `The parts that decide, and beneath them what stands beside the verdict and never moves it: other measures, other members in the place of the judged ones, other sizes. ${kClaimLines} The table has what the file of claims says of each: rows, layers, tokens, and over what the number is taken.`,
  terms: kClaimTerms,
  keys: () => [],
  controls: () => [],
  draw(report, state, width) {
    const entries = [
      ...claimParts(report).filter((entry) => entry.claim === claim).map((entry) => ({...entry, role: "decides"})),
      ...listOf(claim.sensitivity).filter(Boolean).map((part, i) => ({...partEntry(claim, part, `+${i + 1}`, part.verdict), role: "beside it"})),
    ];
    if (!entries.length) return {missing: "this claim has no parts."};
    const several = distinct(entries.map(({part}) => part.size)).length > 1;
    const short = (text) => (text.length > 44 ? `${text.slice(0, 43)}…` : text);
    return {
      ...claimLines(entries, entries.map(({name, part}) => (width < 520 ? name : `${plotText(short(partText(part, several)))} ${name}`))),
      sentence: `${claim.statement} We find: ${verdictText(claim.verdict)}.${claim.note ? ` ${claim.note}` : ""}`,
      links: pictureLinks(claim, claim.parts[decidingPart(claim)], report),
      label: `Estimates of ${countText(entries.length, "number")} of claim ${claim.id} beside their thresholds`,
      table: {
        name: claimAddress(claim), columns: ["part", "role", ...kPartColumns, "tokens", "rows", "layers", "over"],
        rows: entries.map((entry) => [entry.name, entry.role, ...partCells(entry), entry.part.tokens ?? null, entry.part.rows ?? null, entry.part.layers ?? null, entry.part.over ?? null]),
      },
    };
  },
});
