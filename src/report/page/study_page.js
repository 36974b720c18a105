"use strict";
// The page of a study: which pictures in which order, its head and all of its figures.

function runsTable(report) {
  const rows = studyRuns(report).flatMap((run) => {
    const row = (key, value) => [run.track, run.size, run.member, run.seed, key, value];
    return [
      ...["parameters", "parameters_without_embeddings", "tokens", "tokens_per_s", "loss_nats", "perplexity", "bits_per_byte"].map((key) => row(key, finiteOrNull(run[key]))),
      ...Object.entries(run.ending ?? {}).map(([key, value]) => row(`ending.${key}`, typeof value === "boolean" ? String(value) : finiteOrNull(value))),
      ...Object.entries(run.measures ?? {}).map(([key, measured]) => row(`measures.${key}`, finiteOrNull(measured?.value))),
    ];
  });
  return {name: "runs", columns: ["track", "size", "member", "seed", "figure", "value"], rows, most: 3000};
}

// From the least to the most of the runs' numbers, in words; "" where none has it.
function rangeText(runs, key) {
  const {low, high} = overSeeds(runs, (run) => run[key]);
  const write = (x) => (x >= 1e6 ? `${formatNumber(x / 1e6)} million` : Math.round(x).toLocaleString("en"));
  if (low === null) return "";
  return write(low) === write(high) ? write(low) : `${write(low)} to ${write(high)}`;
}

// "26 of 158 runs" of a study that was stopped before its end; null of a whole one.
function runsSoFar(report) {
  const planned = finiteOrNull(report.results.settings?.planned_runs);
  return planned ? `${listOf(report.results.runs).length} of ${planned} runs` : null;
}

const kStudyPage = {
  unit: "seed",
  sections: (report) => [kStudyClaims, ...studyClaims(report).map(claimSection), kStudyRanks, kStudyLayerRanks, ofModels(kSpectra, {claims: [1, 2]}), kStudyLambda, kStudyProfile, kStudyTerms, ofModels(kMap, {claims: [5, 6, 7, 8, 21]}), kStudyNeedles, kStudyDepths, kStudyCurves, kStudyDynamics, kStudyHessian, kStudyMeasures],
  first: claimsFirst,
  limits: studyLimits,
  subtitle(report) {
    const runs = studyRuns(report);
    const failed = listOf(report.results.runs).filter((run) => run?.failed).length;
    const soFar = runsSoFar(report);
    return [soFar && `unfinished: ${soFar}`, countText(runs.length, "trained model"), countText(membersOf(runs).length, "member"), countText(distinct(runs.map((run) => run.seed)).length, "seed"), failed && `${failed} failed`].filter(Boolean).join(" · ");
  },
  summary(report) {
    const runs = studyRuns(report);
    const lines = [claimsSentence(report)];
    // A track that saw no text has a perplexity, and it tells nothing: only where claims ask for loss is it said.
    const ofText = new Set(claimParts(report).filter(({part}) => part.measure === "loss_nats").map(({part}) => part.track));
    for (const group of distinct(runs.filter((run) => ofText.has(run.track)).map(groupOf))) {
      lines.push(memberSentence(`Perplexity on unseen text (${group})`, byMember(report, runsOf(report, group), (run) => run.perplexity, "", 1000)));
    }
    const seeds = distinct(runs.map((run) => run.seed)).length;
    if (seeds < 3) lines.push(`${countText(seeds, "seed")}: with fewer than three no claim is decided.`);
    return lines.filter(Boolean);
  },
  empty: "This study holds no finished run.",
  figures: {title: "All figures", open: "All figures, one line a run and figure", table: runsTable, sentence: (table) => `${countText(table.rows.length, "figure")}.`, keys: () => [], terms: (report) => [...new Map(runMeasures(report).flatMap(measureTerms))]},
};
