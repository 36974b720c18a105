"use strict";
// The pictures of a study: claims with their verdicts, any measure by member, losses on the way, needles.

const studyRuns = (report) => (Array.isArray(report.results.runs) ? report.results.runs : []).filter((run) => run && !run.pilot && !run.failed && typeof run.member === "string");
const studyClaims = (report) => (Array.isArray(report.results.claims) ? report.results.claims : []).filter((claim) => claim && Array.isArray(claim.parts));
const distinct = (values) => [...new Set(values)];
const groupOf = (run) => `${run.track}, ${run.size}`;
const kVerdicts = {supported: "supported", refuted: "refuted", undecided: "undecided", identity: "true by algebra", not_applicable: "not applicable", null: "not measured"};
const verdictText = (verdict) => kVerdicts[verdict] ?? String(verdict);

// One entry a part of each claim, with the distance of its numbers from the threshold, claimed side positive.
function claimParts(report) {
  return studyClaims(report).flatMap((claim) => claim.parts.map((part, place) => {
    const [low, high] = Array.isArray(part.threshold) ? part.threshold : [part.threshold, part.threshold];
    const distance = (x) => {
      if (!Number.isFinite(x) || !Number.isFinite(low)) return null;
      if (part.direction === "inside") return Math.min(x - low, high - x);
      return part.direction === "below" ? low - x : x - low;
    };
    const many = claim.parts.length > 1;
    return {claim, part, distance, name: `${claim.id}${many ? "abcdef"[place] : ""}`, verdict: many ? part.verdict : claim.verdict};
  }));
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

// Members in the order of the runs, a colour and a dash each.
function memberStyle(report, member) {
  const members = distinct(studyRuns(report).map((run) => run.member));
  const place = Math.max(0, members.indexOf(member));
  const {series} = theme();
  return {color: series[place % series.length], dash: ["solid", "dash", "dot", "dashdot"][Math.floor(place / series.length) % 4]};
}

const kStudyClaims = {
  id: "claims",
  title: "What is claimed, and what we measure",
  about: "A line a claim, or a part of one. The dot is the estimate, the bar its 95 % interval over seeds, the light band the noise floor; right of the line in the middle is the claimed side of the threshold. Each line has its own scale, so that lengths can be compared within a line alone: the table has the numbers. A claim is supported if the whole bar lies on the claimed side and the dot beyond the floor, refuted if the same holds on the other side.",
  keys: () => [],
  controls: () => [],
  draw(report, state, width) {
    const parts = claimParts(report);
    if (!parts.length) return {missing: "no claims were judged."};
    const colors = theme();
    const shown = parts.map((entry) => {
      const numbers = ["mean", "low", "high"].map((key) => entry.distance(entry.part[key]));
      const floor = entry.part.floor ?? 0;
      const size = Math.max(...numbers.map((x) => Math.abs(x ?? 0)), floor) || 1;
      return {...entry, middle: numbers[0] === null ? null : numbers[0] / size, ends: numbers.slice(1).map((x) => (x === null ? null : x / size)).sort((a, b) => a - b), floor: floor / size};
    });
    const rows = indices(shown.length);
    const color = {supported: colors.series[3], refuted: colors.series[1], undecided: colors.series[2]};
    const hover = shown.map(({claim, part, verdict}) => `${plotText(claim.statement)}<br>${plotText(part.measure.replaceAll("_", " "))}: ${formatNumber(part.mean)} (${formatNumber(part.low)} to ${formatNumber(part.high)})<br>threshold ${thresholdText(part.threshold)}, ${verdictText(verdict)}`);
    const bar = (ends, place, line) => ({type: "scatter", mode: "lines", x: [...ends, null], y: [place, place, null], line, hoverinfo: "skip", showlegend: false});
    return {
      traces: [
        ...shown.flatMap(({floor}, i) => (floor > 0 ? [bar([-floor, floor], i, {color: colors.line, width: 14})] : [])),
        ...shown.flatMap(({ends, verdict}, i) => (ends.every((x) => x !== null) ? [bar(ends, i, {color: color[verdict] ?? colors.soft, width: 2.5})] : [])),
        {
          type: "scatter", mode: "markers", x: shown.map(({middle}) => middle), y: rows, text: hover, hovertemplate: "%{text}<extra></extra>", showlegend: false,
          marker: {size: 9, color: shown.map(({verdict}) => color[verdict] ?? colors.soft)},
        },
      ],
      layout: {
        xaxis: {title: {text: "other side of the threshold ← → claimed side"}, range: [-1.1, 1.1], zeroline: true, zerolinecolor: colors.ink, showticklabels: false, showgrid: false},
        yaxis: {range: [shown.length - 0.4, -0.6], tickmode: "array", tickvals: rows, ticktext: shown.map(({name, verdict}) => (width < 520 ? name : `${name} ${verdictText(verdict)}`)), showgrid: false},
      },
      height: 90 + 24 * shown.length,
      sentence: claimsSentence(report),
      label: `Estimates of ${countText(shown.length, "part")} of claims beside their thresholds`,
      table: {
        name: "claims", columns: ["claim", "source", "statement", "verdict", "part", "measure", "comparison", "of", "against", "reference", "track", "size", "side", "threshold", "estimate", "low", "high", "floor", "detectable", "claimed effect", "seeds", "verdict of the part", "note"],
        rows: parts.map(({claim, part, name}) => [claim.id, claim.source, claim.statement, verdictText(claim.verdict), name, part.measure, part.comparison, part.of, part.against ?? null, part.reference ?? null, part.track, part.size ?? null, part.direction,
          Array.isArray(part.threshold) ? thresholdText(part.threshold) : part.threshold, part.mean, part.low, part.high, part.floor, part.detectable, part.effect, part.seeds, verdictText(part.verdict), [part.note, claim.note].filter(Boolean).join(" ")]),
      },
    };
  },
};

const groupOptions = (report) => distinct(studyRuns(report).map(groupOf)).map((group) => ({value: group, text: group}));

const runMeasures = (report) => distinct(studyRuns(report).flatMap((run) => Object.keys(run.measures ?? {}).filter((key) => Number.isFinite(run.measures[key]?.value)))).sort();

// One value a run, by member, as dots, with the mean of the seeds.
function byMember(report, runs, value, title, width) {
  const members = distinct(runs.map((run) => run.member));
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
  return `${name}: from ${formatNumber(means[least], 1)} (${members[least]}) to ${formatNumber(means[most], 1)} (${members[most]}), means of seeds.`;
}

const kStudyMeasures = {
  id: "measures",
  title: "Any measure, member by member",
  about: "A dot is one trained model, the stroke the mean over seeds. Definitions of the measures stand in docs/claims.md; measures that do not apply to a member, as those of a noise map to softmax, are left out.",
  keys: () => [],
  controls: (report) => [{id: "group", label: "Models", options: groupOptions(report)}, {id: "measure", label: "Measure", options: runMeasures(report).map((value) => ({value, text: value.replaceAll("_", " ")}))}],
  start: (report) => ({measure: runMeasures(report).includes("loss_nats") ? "loss_nats" : runMeasures(report)[0]}),
  draw(report, state, width) {
    const runs = studyRuns(report).filter((run) => groupOf(run) === state.group);
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
  title: "Needles found, member by member",
  about: "Questions answered right, of the rung of difficulty that the pilot runs chose. The dotted line is chance: one of the numbers in the prompt at random.",
  keys: () => ["accuracy"],
  controls: (report) => [{id: "group", label: "Models", options: groupOptions(report)}],
  draw(report, state, width) {
    const runs = studyRuns(report).filter((run) => groupOf(run) === state.group);
    const {known, ...drawn} = byMember(report, runs, (run) => run.needle?.[0]?.accuracy, "Share answered right", width);
    if (!known.length) return {missing: "no run was asked for needles."};
    const chance = known[0].needle[0].chance;
    const line = {type: "scatter", mode: "lines", x: [-0.6, drawn.members.length - 0.4], y: [chance, chance], name: "chance", line: {dash: "dot", color: theme().soft}, hoverinfo: "skip"};
    return {
      ...drawn, traces: [...drawn.traces, line], layout: {...drawn.layout, yaxis: {...drawn.layout.yaxis, range: [0, 1.02], tickformat: ".0%"}},
      sentence: `${memberSentence("Share of needles found", drawn)} Chance is ${formatShare(chance)}.`, label: "Needles found by member",
      table: {
        name: "needles", columns: ["track", "size", "member", "seed", "asked", "right", "accuracy", "low", "high", "chance"],
        rows: known.map((run) => [run.track, run.size, run.member, run.seed, ...["asked", "right", "accuracy", "low", "high", "chance"].map((key) => run.needle[0][key] ?? null)]),
      },
    };
  },
};

const kCurveKeys = {text_loss_nats: "text", answer_loss_nats: "answers"};

// The mean over seeds of a member's training loss at each point that all of its runs have.
function meanCurve(runs, key) {
  const at = (run) => new Map((run.curve ?? []).filter((point) => Number.isFinite(point?.[key])).map((point) => [point.tokens, point[key]]));
  const curves = runs.map(at);
  return [...(curves[0]?.keys() ?? [])].filter((tokens) => curves.every((curve) => curve.has(tokens))).map((tokens) => [tokens, mean(curves.map((curve) => curve.get(tokens)))]);
}

const kStudyCurves = {
  id: "curves",
  title: "Loss on the way",
  about: "Training loss in nats a token, each point the mean over a stretch of steps and over the seeds. A curve that still falls at the end says that the figures of this study are those of models in the middle of their training.",
  keys: () => [],
  controls: (report) => [{id: "group", label: "Models", options: groupOptions(report)}, {id: "key", label: "Loss on", options: Object.entries(kCurveKeys).map(([value, text]) => ({value, text}))}],
  draw(report, state) {
    const runs = studyRuns(report).filter((run) => groupOf(run) === state.group);
    const members = distinct(runs.map((run) => run.member));
    const curves = members.map((member) => [member, meanCurve(runs.filter((run) => run.member === member), state.key)]).filter(([, points]) => points.length > 0);
    if (!curves.length) return {missing: `these runs have no loss on ${kCurveKeys[state.key]}.`};
    const last = curves.map(([member, points]) => [member, points.at(-1)[1]]).sort((a, b) => a[1] - b[1]);
    return {
      traces: curves.map(([member, points]) => ({
        type: "scatter", mode: "lines", x: points.map(([tokens]) => tokens), y: points.map(([, loss]) => loss), name: member, line: {width: 2, ...memberStyle(report, member)},
        hovertemplate: `${plotText(member)}<br>%{x:,} tokens<br>%{y:.3f} nats<extra></extra>`,
      })),
      layout: {xaxis: {title: {text: "Tokens"}}, yaxis: {title: {text: "Nats a token"}}},
      height: 420,
      sentence: `At the end of training the loss on ${kCurveKeys[state.key]} lies between ${formatNumber(last[0][1], 1)} nats (${last[0][0]}) and ${formatNumber(last.at(-1)[1], 1)} (${last.at(-1)[0]}).`,
      label: "Training loss by tokens, a line a member",
      table: {name: "curves", columns: ["member", "tokens", "loss nats"], rows: curves.flatMap(([member, points]) => points.map(([tokens, loss]) => [member, tokens, loss]))},
    };
  },
};

function runsTable(report) {
  const rows = studyRuns(report).flatMap((run) => [
    ...["parameters", "parameters_without_embeddings", "tokens", "tokens_per_s", "loss_nats", "perplexity", "bits_per_byte"].map((key) => [run.track, run.size, run.member, run.seed, key, finiteOrNull(run[key])]),
    ...Object.entries(run.measures ?? {}).map(([key, measured]) => [run.track, run.size, run.member, run.seed, `measures.${key}`, finiteOrNull(measured?.value)]),
  ]);
  return {name: "runs", columns: ["track", "size", "member", "seed", "figure", "value"], rows, most: 3000};
}

const kStudyPage = {
  unit: "seed",
  sections: [kStudyClaims, kStudyMeasures, kStudyNeedles, kStudyCurves],
  subtitle(report) {
    const runs = studyRuns(report);
    const failed = (report.results.runs ?? []).filter((run) => run?.failed).length;
    return [countText(runs.length, "trained model"), countText(distinct(runs.map((run) => run.member)).length, "member"), countText(distinct(runs.map((run) => run.seed)).length, "seed"), failed && `${failed} failed`].filter(Boolean).join(" · ");
  },
  summary(report) {
    const runs = studyRuns(report);
    const lines = [claimsSentence(report)];
    for (const group of distinct(runs.map(groupOf))) {
      const few = runs.filter((run) => groupOf(run) === group);
      lines.push(memberSentence(`Perplexity on unseen text (${group})`, byMember(report, few, (run) => run.perplexity, "", 1000)));
    }
    const seeds = distinct(runs.map((run) => run.seed)).length;
    if (seeds < 3) lines.push(`${countText(seeds, "seed")}: with fewer than three no claim is decided.`);
    return lines.filter(Boolean);
  },
  empty: "This study holds no finished run.",
  figures: {title: "All figures", open: "All figures, one line a run and figure", table: runsTable, sentence: (table) => `${countText(table.rows.length, "figure")}.`, keys: () => []},
};
