"use strict";
// What each kind of page cannot show. A page's limits(report) gives {general, notes}: sentences of all of it, and of its
// claims one by one.

const kLimits = {id: "limits", title: "What this cannot show"};

function analysisLimits(report) {
  const windows = listOf(report.results.windows).length;
  const heads = report.pairs.length;
  return {general: [
    `Texts. All figures are of ${windows ? `${countText(windows, "window")} of ` : ""}one text. Intervals say how far its windows differ, not how far texts do.`,
    "Weight is not use. A map says where a head reads, not what becomes of it: a value can be small, and later layers can undo what it brings. Whether the loss depends on a map shows only when the map is changed.",
    "One model. Another training of the same architecture has other heads. What is seen here is this model's, and not yet a property of its kind of attention: that takes models trained side by side (unchain study).",
    heads > 1 && `Extremes. The head that is the largest of ${heads} was chosen because it is: on another text it will mostly lie nearer to the others.`,
    "Length. Ranks and entropies grow with the number of tokens; compare them between windows of one length alone.",
    report.extras.excerpt && "Single maps. The map that can be looked at is of the first tokens of the first window, with 8 bits a weight; other windows may look different.",
  ].filter(Boolean)};
}

function needleLimits(report) {
  const lengths = needleCells(report).map(({length}) => length);
  const several = report.results.settings?.queries > 1;
  return {general: [
    "Task. A sentence is found again and its number copied. Nothing is said of understanding a text, of joining what stands in two places, or of questions in other words than the needle's.",
    "Form. A model can fail at the form of the answer and not at finding it, and one that was trained on this form can succeed by it. All answers are below, in the model's own words.",
    lengths.length && `Length. Nothing was asked in more than ${Math.max(...lengths)} tokens.`,
    several && "Questions. Those of one prompt share its text. The intervals of accuracy take them for independent, and are too narrow where they are not.",
    "Attention. Weight on the answer does not prove that the answer was read there, and a mean over all heads hides the few that find it.",
    "One model. Intervals are over prompts: another training of the same architecture may find more or fewer.",
  ].filter(Boolean)};
}

function compareLimits(report) {
  const pairs = listOf(report.results.paired).length;
  return {general: [
    "Cause. Models differ in more than their attention, unless all else of their training was the same: what differs here are these models, not yet kinds of attention.",
    "Seeds. Each model is one training. Intervals are over what was read: a clear difference may be no larger than that between two trainings of one architecture, which takes several seeds to tell (unchain study).",
    pairs > 1 && `Chance. Each of the ${pairs} differences has its own 95 %: of equal models about one in twenty would seem to differ clearly.`,
    "Texts. All models read the same windows, prompts and questions. Intervals say how far these differ, not how far other texts do.",
    "Vocabularies. Losses and errors a token compare models of one vocabulary alone; bits a byte compare any.",
    comparedModels(report).some((model) => growthOf(model).length) && "Cost. Numbers to hold and multiply-adds are counted, not measured: they are no seconds and no bytes of a machine.",
  ].filter(Boolean)};
}

function studyLimits(report) {
  const runs = studyRuns(report);
  const claims = studyClaims(report);
  const parts = claimParts(report).length;
  const [parameters, tokens] = [rangeText(runs, "parameters"), rangeText(runs, "tokens")];
  const soFar = runsSoFar(report);
  const general = [
    soFar && `Unfinished. ${soFar} are done. Those that are missing may turn what is said here: verdicts count when all are done, or one would stop at the verdict that pleases.`,
    parameters && tokens && `Sizes. These models have ${parameters} parameters and were trained on ${tokens} tokens; nothing here says how larger ones behave.`,
    "Texts. All models were trained and measured on the same texts. A seed varies the first weights and the order of the data, not the text: intervals say how far seeds differ, not how far texts do.",
    `Seeds. ${countText(distinct(runs.map((run) => run.seed)).length, "seed")} at most; standard deviations and noise floors are estimated from them, so that only large effects are seen.`,
    parts > 1 && `Chance. Each of the ${parts} parts of claims has its own 95 %: if all truths lay on their thresholds, up to one verdict in twenty would be wrong by chance.`,
    "Tokens are not time. Models are compared at equal tokens; a member that takes longer for a token is not charged for it.",
    "Members were trained with the settings of their size, not each with those that suit it best.",
  ].filter(Boolean);
  const notes = claims.filter(({note: text}) => typeof text === "string" && text).map(({id, note: text}) => `Claim ${id}. ${text}`);
  return {general, notes};
}
