"""Entries on the stability of reasons (SHAPC) and on what explains the curves (CLAMP)."""

from perdure.report.glossary.terms import Term

REASONS_GUIDE = "docs/stability.md"
SHAPC_PAPER = "Cai et al."
CLAMP_SOURCE = "Rivera et al. 2022; docs/clamp.md"
CLAMP_INTERVAL = (
    "The 95 % interval is the widest of statistical error, spread between seeds and competing explanations."
)

SHAPC_TERMS = (
    Term(
        key="shapc_mean",
        name="mean SHAP value consistency",
        meaning="How much of what mattered for a decision still matters after later steps. From 0 to 1, higher is "
        "more stable; unrelated reasons score about 0.2, not 0.",
        computed="Weighted overlap of the most important 30 % (by default) of two attribution maps of an example; "
        "mean over examples, later steps and tasks. Interval over runs; for one run, bootstrap over examples.",
        not_for="Do not compare it between explainers, numbers of samples or networks: sampling noise lowers it. It "
        "does not say whether the reasons are good.",
        short="SHAPC-Mean",
        source=f"{SHAPC_PAPER}, Eq. 7; {REASONS_GUIDE}",
    ),
    Term(
        key="shapc_var",
        name="variation of SHAP value consistency",
        meaning="How unevenly the reasons of different examples change. At least 0, lower is more even; 0.2 means "
        "that values deviate from their mean by about 20 %.",
        computed="Standard deviation over examples divided by the mean, averaged over later steps and tasks. Interval "
        "over runs; for one run, studentized bootstrap over examples on the log scale.",
        not_for="Do not read it as a variance: it is a coefficient of variation. A low value with a low SHAPC-Mean "
        "means that all reasons changed alike.",
        short="SHAPC-Var",
        source=f"{SHAPC_PAPER}, Eq. 9; {REASONS_GUIDE}",
    ),
    Term(
        key="shapc_calibrated",
        name="calibrated SHAP value consistency",
        meaning="How similar the reasons are to the earlier ones, on a scale from 0 (no more than those of an untrained "
        "network) to 1 (identical); not a share of reasons. Higher is more stable; values beyond 0 to 1 are shown clipped.",
        computed="(consistency without sampling noise - floor) / (1 - floor) for each task and later step, then "
        "averaged. Interval over runs; for one run, Student's t over examples and untrained networks.",
        not_for="Do not use it to judge whether reasons are right: a high value means the same reasons as before, right or "
        "wrong. Next to a low accuracy it says little, because a forgotten task has no reasons left to keep.",
        short="calibrated SHAPC",
        source=REASONS_GUIDE,
    ),
    Term(
        key="shapc_floor",
        name="consistency with untrained networks",
        meaning="SHAP value consistency that a network reaches that has learned nothing: the 0 of the calibrated "
        "scale. From 0 to 1; it has no better direction.",
        computed="Consistency without sampling noise between the network right after a task and several (by default "
        "twelve) untrained networks, averaged like SHAPC-Mean. The interval is a bootstrap over examples.",
        not_for="Do not judge a learner by it: it depends on the architecture and the data. Do not subtract it from "
        "SHAPC-Mean, which contains sampling noise.",
        short="untrained networks",
        source=REASONS_GUIDE,
    ),
    Term(
        key="shapc_ceiling",
        name="noise ceiling",
        meaning="Highest SHAP value consistency that sampling noise allows, even if nothing changed. From 0 to 1; "
        "close to 1 means that the maps have little noise.",
        computed="Consistency of two maps of the same network from independent halves of the random draws, averaged "
        "over the two networks of a pair. It is 1 for explainers without random draws.",
        not_for="Do not read a low ceiling as a property of the learner: it describes the maps. More samples per map "
        "raise it.",
        short="ceiling",
        source=REASONS_GUIDE,
    ),
    Term(
        key="shapc_independent",
        name="consistency from independent draws",
        meaning="SHAP value consistency of two networks whose maps share no random draws; it contains change and "
        "sampling noise. From 0 to 1.",
        computed="Consistency of the map from the first half of the draws under one network with the map from the "
        "second half under the other, averaged over both orders and over examples.",
        not_for="Do not use it as a score: it falls with change and with noise and cannot tell them apart. It only "
        "serves to compute the noise ratio.",
        short="independent",
        source=REASONS_GUIDE,
    ),
    Term(
        key="shapc_ratio",
        name="noise ratio",
        meaning="A check of the calibrated score: an upper bound that falls towards it as the number of samples "
        "grows. If both agree, sampling noise hardly matters.",
        computed="(consistency from independent draws - floor) / (noise ceiling - floor) for each task and later "
        "step, then averaged. The interval is Student's t over examples and untrained networks.",
        not_for="Do not report it in place of the calibrated score: it is too high, the more so the fewer samples "
        "were drawn.",
        source=REASONS_GUIDE,
    ),
    Term(
        key="still_correct",
        name="consistency of examples that are still correct",
        meaning="SHAP value consistency of examples that are classified correctly both right after their task and "
        "later. From 0 to 1, higher is more stable.",
        computed="SHAPC-Mean over the pairs of example and later step with this outcome; n counts pairs. The interval "
        "is a bootstrap over examples.",
        not_for="Do not compare it with the calibrated score: it contains sampling noise and chance agreement. With "
        "few pairs the difference to forgotten examples is uncertain.",
        short="still correct",
        source=REASONS_GUIDE,
    ),
    Term(
        key="forgotten",
        name="consistency of forgotten examples",
        meaning="SHAP value consistency of examples that were classified correctly right after their task and are "
        "wrong later. From 0 to 1, higher is more stable.",
        computed="SHAPC-Mean over the pairs of example and later step with this outcome; n counts pairs. The interval "
        "is a bootstrap over examples.",
        not_for="Do not read it as the amount of forgetting: it says whether forgotten examples also lost their "
        "reasons. Use forgetting for the amount.",
        source=REASONS_GUIDE,
    ),
    Term(
        key="retraining_reference",
        name="consistency after retraining",
        meaning="Calibrated SHAP value consistency of two networks trained from different seeds on the same task: the "
        "change that retraining alone causes. From 0 to 1; higher values need not be demanded of a learner.",
        computed="The calibrated score between the networks of two seeds, each right after the task. The interval is "
        "Student's t over examples and untrained networks.",
        not_for="Do not take it as the limit of any learner: one that keeps data or logits can stay closer to itself "
        "than retraining does. It rests on one pair of networks.",
        short="retraining, calibrated",
        source=REASONS_GUIDE,
    ),
    Term(
        key="shapc_degenerate",
        name="pairs without an important region",
        meaning="Number of pairs of example and later step that have no value, because a map is constant. 0 is best.",
        computed="Count of missing values; these pairs are left out of all means.",
        not_for="Do not ignore a large count: the scores then describe only the remaining examples.",
        short="degenerate",
        source=REASONS_GUIDE,
    ),
    Term(
        key="shapc_budget",
        name="sufficient number of samples",
        meaning="Whether more random draws per map would change the result: yes means that the number of samples is "
        "sufficient.",
        computed="Yes if doubling the samples per map, from one half of the draws to both, changes SHAPC-Mean by at "
        "most 0.01; always yes for explainers without random draws.",
        not_for="Do not read yes as enough examples or runs: it is about the noise of single maps only. The interval "
        "covers the examples.",
        short="enough samples",
        source=REASONS_GUIDE,
    ),
    Term(
        key="shapc_difference",
        name="difference of SHAP value consistency between learners",
        meaning="SHAPC-Mean or calibrated score of one learner minus that of another. Positive: the first one keeps "
        "its reasons better.",
        computed="On common examples and seeds; interval of this pair alone from a two-level bootstrap over runs, then "
        "examples, with Student's t below ten runs. The p-value is Holm-corrected over all pairs of learners.",
        not_for="Do not generalize a difference from a single seed: it compares two networks, not two methods. Do not "
        "compare learners under different explainers.",
        short="difference",
        source=REASONS_GUIDE,
    ),
)

CLAMP_TERMS = (
    Term(
        key="efficiency",
        name="transfer efficiency",
        meaning="How much one visit to a task teaches this algorithm, relative to the mean of all fitted algorithms. "
        "At least 0, higher is better; 1 is the mean.",
        computed="Gamma of the CLAMP model, fitted to the curves of all algorithms together and divided by its mean. "
        + CLAMP_INTERVAL,
        not_for="Do not compare it between audits: it is relative to the algorithms of this fit, and always 1 for a "
        "single one. Do not use a value that is marked as not determined.",
        source=CLAMP_SOURCE,
    ),
    Term(
        key="retention",
        name="experience retention",
        meaning="Share of what the algorithm has built up that survives one step. From 0 (nothing) to 1 (everything), "
        "higher is better.",
        computed="h of the CLAMP model, fitted to the curves of all algorithms together. " + CLAMP_INTERVAL,
        not_for="Do not use a value that is marked as not determined: if every task is visited once, forgetting "
        "cannot be separated from interference between tasks. It is not a share of accuracy.",
        source=CLAMP_SOURCE,
    ),
    Term(
        key="translation",
        name="expertise translation",
        meaning="How much existing skill on a task speeds up further training on it, relative to the mean efficiency. "
        "At least 0, higher is better; 0 is no effect.",
        computed="Lambda of the CLAMP model, fitted to the curves of all algorithms together and divided by the mean "
        "efficiency. " + CLAMP_INTERVAL,
        not_for="Do not use it if each task is visited once: it can then hardly be distinguished from efficiency. Do "
        "not compare it between audits.",
        source=CLAMP_SOURCE,
    ),
    Term(
        key="transfer",
        name="transfer between tasks",
        meaning="Effect of training the task of the row on the task of the column, relative to training the latter "
        "itself (1). Positive helps, negative hurts; not limited to -1 to 1.",
        computed="Effect of one visit in the CLAMP model divided by the magnitude of the task's effect on itself; "
        "assumed to be the same for all algorithms. " + CLAMP_INTERVAL,
        not_for="Do not read it as a causal effect: forgetting and negative transfer can explain the same curves. "
        "Rows of tasks that were never trained are missing.",
        source=CLAMP_SOURCE,
    ),
    Term(
        key="difficulty",
        name="task difficulty",
        meaning="How much experience a task requires for an improvement. Above 0, lower is easier; comparable only "
        "between the tasks of one fit.",
        computed="1 divided by the magnitude of the effect that one visit to the task has on itself in the CLAMP "
        "model. " + CLAMP_INTERVAL,
        not_for="Do not compare it between benchmarks or audits: it depends on the length of a visit and on the "
        "algorithms. It is missing for tasks that were never trained.",
        source=CLAMP_SOURCE,
    ),
    Term(
        key="supported",
        name="determined by the data",
        meaning="Whether the curves alone, without prior assumptions, determine a property. No means: the value is "
        "mostly an assumption, and only its interval is meaningful.",
        computed="Yes if half the 95 % interval from the data alone is at most 0.25 (retention), 0.5 (efficiency), or "
        "the larger of 0.5 and half the value (translation), and no competing explanation differs by more.",
        not_for="Do not read yes as proof that the model is right: it says that the value is determined if the model "
        "holds. Compare the forecasts for that.",
        short="determined",
        source=CLAMP_SOURCE,
    ),
    Term(
        key="clamp_forecast",
        name="forecast of later steps",
        meaning="Whether the fitted model predicts steps that it has not seen better than simple rules do. Supported: "
        "better than all four simple predictors in every test.",
        computed="Mean squared error of the later steps after a fit to the first ones, compared with last value, "
        "running mean, previous cycle, and means when trained and not trained.",
        not_for="Do not trust a best order of tasks, or a prediction for a new curriculum, if the forecast is not "
        "supported.",
        short="forecast",
        source=CLAMP_SOURCE,
    ),
)
TERMS = (*SHAPC_TERMS, *CLAMP_TERMS)
