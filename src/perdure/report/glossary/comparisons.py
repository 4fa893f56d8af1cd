"""Entries on intervals, p-values, ranks and verdicts, and on the comparison of two versions of a model."""

from perdure.report.glossary.terms import Term

GUIDE = "docs/metrics.md"
COMPARE = "docs/compare.md"
CALIBRATION = "Guo et al. 2017; docs/compare.md"

STATISTICS_TERMS = (
    Term(
        key="interval",
        name="95 % interval",
        meaning="The range of values that are compatible with the data. If the study were repeated many times, about "
        "95 % of such intervals would contain the true value.",
        computed="Over runs or over examples, as stated next to the number. Intervals over runs are clipped to the range of "
        "the metric.",
        not_for="Do not compare two learners by whether their intervals overlap: use the difference and its p-value. "
        "It does not cover other data sets or settings.",
        source=GUIDE,
    ),
    Term(
        key="interval_runs",
        name="95 % interval over runs",
        meaning="Uncertainty from training: where the mean over many runs with other seeds probably lies. It is wide "
        "with few runs; a single run has none.",
        computed="Student's t for two to nine runs, studentized bootstrap for ten or more. If a run has no value, "
        "there is no interval.",
        not_for="Do not read it as the range of single runs: it is about their mean. Do not treat a number without an "
        "interval as exact.",
        source=GUIDE,
    ),
    Term(
        key="interval_examples",
        name="95 % interval over examples",
        meaning="Uncertainty from the choice of test examples, for the given network or networks.",
        computed="Bootstrap or Student's t over the examined examples; exact for accuracies of single models and "
        "their paired differences.",
        not_for="Do not use it to claim that a training method is better: it does not cover retraining. Audit several "
        "seeds for that.",
        source=f"docs/stability.md; {COMPARE}",
    ),
    Term(
        key="difference",
        name="difference between learners",
        meaning="Metric of one learner minus that of another, over the seeds that both have. Its sign shows which is "
        "higher; 0 is no difference.",
        computed="Mean of the differences of runs with the same seed, with a 95 % interval: Student's paired t for "
        "two to nine seeds, studentized bootstrap for ten or more.",
        not_for="Do not read a difference without an interval as a finding. Not significant does not mean equal: the "
        "interval shows which differences are still possible.",
        source=GUIDE,
    ),
    Term(
        key="p_value",
        name="p-value",
        meaning="How often a difference at least this large would arise by chance if there were none. From 0 to 1; "
        "small values speak against chance.",
        computed="From the same distribution as the interval next to it, or from the test named there; two-sided "
        "unless stated otherwise.",
        not_for="Do not read it as the probability that there is no difference, nor as its size. If many are shown, "
        "use those that are corrected.",
        short="p",
        source=GUIDE,
    ),
    Term(
        key="p_holm",
        name="p-value corrected with Holm's method",
        meaning="p-value that accounts for several comparisons: if only values below 0.05 are reported, the "
        "probability of any false claim in the family is at most 5 %.",
        computed="The smallest of k p-values is multiplied by k, the next by k - 1, and so on; never decreasing, at "
        "most 1. The family is named next to the table, such as all pairs of learners within a metric.",
        not_for="Do not compare it between families: with more learners the same difference has a larger value. It "
        "does not correct over several metrics.",
        short="p (Holm)",
        source=f"Holm 1979; {GUIDE}",
    ),
    Term(
        key="rank",
        name="rank",
        meaning="Place among the learners that the data support; 1 is best. Learners that cannot be separated share a "
        "rank, so several can have rank 1.",
        computed="Learners whose interval overlaps with that of the best one share its rank. The best of the others begins "
        "the next rank, which counts all learners before it: 1, 1, 3.",
        not_for="Do not read equal ranks as equal performance: more runs can separate them. For two particular "
        "learners, use the difference and its p-value, which usually decides earlier.",
        source=GUIDE,
    ),
    Term(
        key="verdict",
        name="verdict",
        meaning="A number in one word: good, weak or bad if its whole interval supports this, otherwise undecided; "
        "not measured if there is no number.",
        computed="Thresholds are applied to the whole interval, not to the mean: every value in it must get the same "
        "word.",
        not_for="Do not use it as an approval: the thresholds are conventions of this report, not requirements of "
        "your application. Set your own with perdure check.",
        source="docs/report.md",
    ),
    Term(
        key="verdict_good",
        name="good",
        meaning="The whole interval is on the good side of the threshold for good.",
        computed="The worse end of the interval meets the threshold for good.",
        not_for="Do not read it as safe or ready for use: it is about this number on this benchmark only.",
        source="docs/report.md",
    ),
    Term(
        key="verdict_weak",
        name="weak",
        meaning="The whole interval lies between the thresholds for good and for bad.",
        computed="The better end of the interval misses the threshold for good, and the worse end is not bad.",
        not_for="Do not read it as uncertain: the number is known well enough to say that it is neither good nor bad.",
        source="docs/report.md",
    ),
    Term(
        key="verdict_bad",
        name="bad",
        meaning="The whole interval is on the bad side of the threshold for bad.",
        computed="The better end of the interval is still bad.",
        not_for="Do not read it as useless: another metric or another benchmark can say otherwise.",
        source="docs/report.md",
    ),
    Term(
        key="verdict_undecided",
        name="undecided",
        meaning="The interval contains a threshold, so the data do not decide between two verdicts.",
        computed="The two ends of the interval get different words, or there is no interval, as for a single run with an "
        "unknown number of test examples.",
        not_for="Do not count it as a pass or a failure. More runs or more examples make the interval shorter.",
        source="docs/report.md",
    ),
    Term(
        key="verdict_not_measured",
        name="not measured",
        meaning="There is no number, so there is no verdict; the reason or the command that computes it is given.",
        computed="The metric is missing or its part of the audit was not run.",
        not_for="Do not read it as 0 or as bad: nothing is known.",
        source="docs/report.md",
    ),
)

COMPARISON_TERMS = (
    Term(
        key="accuracy_difference",
        name="paired accuracy difference",
        meaning="Accuracy of NEW minus accuracy of OLD on the same test examples. From -1 to 1; positive means that "
        "NEW is better.",
        computed="(wrong to right - right to wrong) / test examples, with an exact 95 % interval for paired examples; "
        "p-values of classes and tasks are Holm-corrected.",
        not_for="Do not use it as evidence that the new training procedure is better: it compares two trained models. "
        "0 can hide many changed predictions, see the flips.",
        source=COMPARE,
    ),
    Term(
        key="negative_flips",
        name="right to wrong",
        meaning="Number of test examples that OLD classifies correctly and NEW does not. Lower is better.",
        computed="Count over all test examples.",
        not_for="Do not compare counts between test sets of different size: use the negative flip rate. Retraining on "
        "the same data also flips examples.",
        source=COMPARE,
    ),
    Term(
        key="positive_flips",
        name="wrong to right",
        meaning="Number of test examples that OLD classifies wrongly and NEW correctly. Higher is better.",
        computed="Count over all test examples.",
        not_for="Do not offset them silently against negative flips: users notice what used to work and now fails.",
        source=COMPARE,
    ),
    Term(
        key="other_flips",
        name="changed wrong predictions",
        meaning="Number of test examples that both versions classify wrongly, with different predictions. Neither "
        "direction is better.",
        computed="Count over all test examples.",
        not_for="Do not ignore them if errors have different costs: one wrong class can be worse than another.",
        source=COMPARE,
    ),
    Term(
        key="negative_flip_rate",
        name="negative flip rate",
        meaning="Share of the test examples that OLD (the baseline) classifies correctly and NEW does not. From 0 to "
        "1, lower is better.",
        computed="Right-to-wrong examples divided by all test examples, with an exact interval (Clopper and Pearson).",
        not_for="Do not demand 0: retraining on the same data also flips examples. Some tools divide by the examples "
        "that OLD classifies correctly; this number divides by all.",
        source="docs/check.md",
    ),
    Term(
        key="expected_calibration_error",
        name="expected calibration error",
        meaning="Mean distance between how sure the model is and how often it is right. From 0 to 1, lower is better.",
        computed="Predictions are sorted by confidence into 15 bins of equal width; |accuracy - mean confidence| of "
        "each bin, weighted by its share of examples. Interval of the difference: bootstrap over examples.",
        not_for="Do not use it to compare accuracies: a model that always predicts at chance can be calibrated. With "
        "few examples it is too high.",
        source=CALIBRATION,
    ),
    Term(
        key="brier_score",
        name="Brier score",
        meaning="Error of the predicted probabilities: it rewards being right and being honest about doubt. From 0 to "
        "2, lower is better.",
        computed="Squared difference between predicted probability and 1 for the true class or 0 for others, summed "
        "over classes, mean over examples. Interval of the paired difference: Student's t.",
        not_for="Do not compare it with scikit-learn's score for two classes, which is half as large. It mixes "
        "accuracy and calibration.",
        source=COMPARE,
    ),
    Term(
        key="log_loss",
        name="log loss",
        meaning="How surprised the model is by the true classes. At least 0, lower is better; a confident error costs "
        "most.",
        computed="Minus the natural logarithm of the probability of the true class, at least 1e-12, mean over "
        "examples. Interval of the paired difference: Student's t.",
        not_for="Do not read a change as a change of accuracy: a few confident errors can dominate it.",
        source=COMPARE,
    ),
    Term(
        key="reasons",
        name="calibrated similarity of reasons",
        meaning="How similar the reasons of NEW are to those of OLD. 0: no more than those of an untrained network, "
        "1: identical; values beyond are shown clipped.",
        computed="Calibrated SHAPC of the maps of both versions, averaged over the explained examples of each task, "
        "then over tasks. Interval: Student's t over examples and untrained networks.",
        not_for="Do not judge a change by this number alone: retraining on the same data also changes reasons. It "
        "does not say which reasons are right.",
        short="calibrated similarity",
        source=COMPARE,
    ),
    Term(
        key="reasons_example",
        name="calibrated similarity of one example",
        meaning="How similar the reasons of both versions are for one example. 0: like an untrained network on "
        "average, 1: identical; shown clipped to 0 to 1.",
        computed="(consistency without sampling noise - floor) / (1 - floor), with the floor averaged over the "
        "examples of the task.",
        not_for="Do not base a decision about one example on it: single values have no interval and are noisy.",
        short="calibrated",
        source=COMPARE,
    ),
    Term(
        key="shapc",
        name="SHAP value consistency",
        meaning="Overlap of what matters to two networks for the same examples, sampling noise included. From 0 to 1, "
        "higher is more similar; unrelated maps score about 0.2.",
        computed="Weighted overlap of the most important 30 % (by default) of two attribution maps, averaged over "
        "examples. The interval is a bootstrap over examples.",
        not_for="Do not compare it between explainers or numbers of samples: identical networks score 1 only because "
        "they share random draws. Use the calibrated similarity.",
        short="SHAPC",
        source=COMPARE,
    ),
    Term(
        key="same_answer",
        name="same answer, different reasons",
        meaning="Number of explained examples that both versions classify alike; those with the most different "
        "reasons are listed first.",
        computed="Count over the explained examples, sorted by the calibrated similarity of each example.",
        not_for="Do not read the listed examples as typical: they are the extremes.",
        short="same answer",
        source=COMPARE,
    ),
    Term(
        key="feature_importance",
        name="importance of a feature",
        meaning="Share of all attributions that falls on a feature or word, and its change from OLD to NEW. From 0 to "
        "1; neither direction is better.",
        computed="|attribution| / sum of |attributions| of an example, mean over examples. The 95 % intervals of the "
        "changes hold for all features together (max-t bootstrap over examples).",
        not_for="Do not read importance as effect or cause: it has no sign, and correlated features share it. "
        "Retraining also changes it; ▲ marks larger changes.",
        short="importance",
        source=COMPARE,
    ),
    Term(
        key="test_importance",
        name="test of the importance of features",
        meaning="Similarity of the global importance of features between NEW and the other versions. From 0 to 1, "
        "higher is more similar.",
        computed="Cosine of the mean magnitudes of the features' attributions, averaged over all other versions; "
        "Student's t on a log scale for one more retrained version, one-sided.",
        not_for="Do not expect it to find changes of single examples that cancel on average: the test of reasons is "
        "for these.",
        short="importance of features",
        source=COMPARE,
    ),
    Term(
        key="test_reasons",
        name="test of the reasons of single examples",
        meaning="Similarity of the reasons of NEW to those of the other versions, example by example. 0: like an "
        "untrained network, 1: identical.",
        computed="Mean calibrated similarity with all other versions; Student's t on a log scale for one more "
        "retrained version, one-sided.",
        not_for="Do not use it if the references were trained on other data or settings: it then tests these "
        "differences.",
        short="reasons of single examples",
        source=COMPARE,
    ),
    Term(
        key="test_scale",
        name="test of the size of attributions",
        meaning="Total size of the attributions of NEW compared with the other versions: whether its scores react "
        "more or less strongly to the inputs. At least 0; neither direction is better.",
        computed="Sum of the magnitudes of a map, mean over examples, on the log scale; two-sided prediction interval "
        "of one more retrained version (Student's t).",
        not_for="Do not read a change as other reasons: a model that became more confident has larger attributions "
        "for the same reasons.",
        short="size of attributions",
        source=COMPARE,
    ),
    Term(
        key="test_accuracy",
        name="test of the accuracy against retraining",
        meaning="Whether the accuracy of NEW lies where retraining would put it. From 0 to 1, higher is better.",
        computed="Two-sided prediction interval from the accuracies of OLD and the references (Student's t), with the "
        "variance that the choice of test examples causes.",
        not_for="Do not confuse it with the accuracy difference: that compares NEW with OLD only and ignores how much "
        "retraining varies.",
        short="accuracy",
        source=COMPARE,
    ),
    Term(
        key="retraining_interval",
        name="interval of retraining",
        meaning="Where a value would lie if NEW were one more version retrained on the same data. A value outside it "
        "is more change than retraining causes.",
        computed="Prediction interval from OLD and at least three references (Student's t). Its level follows from "
        "the test's share of the false-alarm rate of 5 %.",
        not_for="Do not read a value inside it as proof of no change: with three references only large changes are "
        "found.",
        short="Retraining",
        source=COMPARE,
    ),
    Term(
        key="retraining_p",
        name="p-value of change relative to retraining",
        meaning="How often a version retrained on the same data would look at least as different as NEW. From 0 to 1; "
        "below 0.05 the verdict is changed.",
        computed="Smallest p-value of the tests of importance, reasons, scale and accuracy, each divided by its share "
        "of the false-alarm rate (0.5, 0.2, 0.2, 0.1), at most 1.",
        not_for="Do not read a large value as proof that nothing changed, nor a small one as harm: it is about more "
        "change than retraining causes, for better or worse.",
        short="more than retraining",
        source=COMPARE,
    ),
    Term(
        key="comparison_verdict",
        name="verdict of a comparison",
        meaning="Changed: NEW differs by more than retraining does. Unchanged: no evidence of that; undecided: the "
        "question cannot be answered, for example without references.",
        computed="With references: changed if the p-value is below 0.05. Without: changed if the interval of the "
        "accuracy difference excludes 0, unchanged only if scores and maps are identical.",
        not_for="Do not read unchanged as proven equal, or changed as worse. References that were trained differently "
        "from OLD make the verdict meaningless.",
        short="verdict",
        source=COMPARE,
    ),
)
TERMS = (*STATISTICS_TERMS, *COMPARISON_TERMS)
