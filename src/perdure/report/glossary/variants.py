"""Entries on other frameworks' variants of the metrics, and on the lifelong-learning metrics of New et al. 2022."""

from perdure.report.glossary.terms import OVER_RUNS, Term

GUIDE = "docs/metrics.md"
LIFELONG = "New et al. 2022; docs/lifelong-metrics.md"
SCALED = "Curves are smoothed and each task is scaled to 1 to 101 first; one value per run, without an interval."

VARIANTS = (
    Term(
        key="gem_accuracy",
        name="final accuracy as in gradient episodic memory",
        meaning="Accuracy after the last step, averaged over tasks; the same number as average accuracy. From 0 to 1, "
        "higher is better.",
        computed="Mean of the accuracies on all trained tasks after the last step. " + OVER_RUNS,
        not_for="Do not count it as further evidence next to average accuracy: it is the same number under another "
        "name.",
        short="GEM ACC",
        source=f"Lopez-Paz and Ranzato 2017; {GUIDE}",
    ),
    Term(
        key="gem_backward_transfer",
        name="backward transfer as in gradient episodic memory",
        meaning="How much the accuracy on old tasks changed from the end of their training to the end of the "
        "sequence. From -1 to 1, higher is better; negative is forgetting.",
        computed="Accuracy after the last step minus accuracy right after the task's own training, averaged over all "
        "tasks but the last. " + OVER_RUNS,
        not_for="Do not compare it with BWT of this report, which averages over all steps. Drops that recover before "
        "the last step are not seen.",
        short="GEM BWT",
        source=f"Lopez-Paz and Ranzato 2017; {GUIDE}",
    ),
    Term(
        key="gem_forward_transfer",
        name="forward transfer as in gradient episodic memory",
        meaning="How much earlier tasks helped a task before its own training, compared with an untrained network. "
        "From -1 to 1, higher is better; 0 is no transfer.",
        computed="Accuracy on a task just before its training minus accuracy before any training, averaged over all "
        "tasks but the first. " + OVER_RUNS,
        not_for="Do not compare it with FWT of this report, which subtracts no baseline. A single random "
        "initialization is a noisy baseline.",
        short="GEM FWT",
        source=f"Lopez-Paz and Ranzato 2017; {GUIDE}",
    ),
    Term(
        key="continuum_forward_transfer",
        name="forward transfer as in continuum",
        meaning="Accuracy on a task just before its training. From 0 to 1, higher is better; a network that guesses "
        "scores chance level, not 0.",
        computed="Accuracy on a task after the step before its own, without a baseline, averaged over all tasks but "
        "the first. " + OVER_RUNS,
        not_for="Do not read a positive value as transfer before comparing it with chance level, and do not compare "
        "it with FWT or GEM FWT: all three differ.",
        short="continuum FWT",
        source=GUIDE,
    ),
    Term(
        key="chaudhry_forgetting",
        name="forgetting as in Chaudhry et al.",
        meaning="How far the final accuracy on old tasks lies below its best value since their training. From -1 to "
        "1, lower is better.",
        computed="Highest accuracy from the task's own training to the step before the last, minus accuracy after the "
        "last step; mean over all tasks but the last. " + OVER_RUNS,
        not_for="Do not mix it with forgetting of this report, which also counts accuracies before the task's "
        "training. A task that was never learned cannot be forgotten.",
        short="Chaudhry forgetting",
        source=f"Chaudhry et al. 2018; {GUIDE}",
    ),
    Term(
        key="avalanche_forgetting",
        name="forgetting as in avalanche",
        meaning="How far the final accuracy on old tasks lies below that right after their training. From -1 to 1, "
        "lower is better.",
        computed="Accuracy right after the task's own, most recent training minus accuracy after the last step; mean "
        "over all tasks but the last. " + OVER_RUNS,
        not_for="Do not mix it with forgetting of this report, which starts from the best earlier accuracy. Without "
        "revisited tasks it is minus GEM BWT and adds nothing to it.",
        short="avalanche forgetting",
        source=GUIDE,
    ),
    Term(
        key="mammoth_forgetting",
        name="forgetting as in mammoth",
        meaning="How far the final accuracy on old tasks lies below its best value, the final one included. From 0 to "
        "1, lower is better; never negative.",
        computed="Highest accuracy from the task's own training to the last step, minus accuracy after the last step; "
        "mean over all tasks but the last. " + OVER_RUNS,
        not_for="Do not use it to look for improvement on old tasks: it shows improvement as 0. Do not mix it with "
        "forgetting of this report.",
        short="mammoth forgetting",
        source=GUIDE,
    ),
    Term(
        key="intransigence",
        name="intransigence",
        meaning="How much worse the learner learns a task than a network trained jointly on all data so far. From -1 "
        "to 1, lower is better; negative is better than the reference.",
        computed="Accuracy of the jointly trained reference on a task minus accuracy right after the task's training, "
        "averaged over tasks; the reference is the learner cumulative, otherwise joint. " + OVER_RUNS,
        not_for="Do not compare values with different references: the note names the one that was used. It says "
        "nothing about forgetting afterwards.",
        source=f"Chaudhry et al. 2018; {GUIDE}",
    ),
    Term(
        key="average_anytime_accuracy",
        name="average anytime accuracy",
        meaning="Accuracy on the tasks trained so far at any moment of training. From 0 to 1, higher is better.",
        computed="Mean accuracy on the tasks trained so far, the present one included, averaged over all evaluations, "
        "within steps if there are any. " + OVER_RUNS,
        not_for="Do not compare runs that were evaluated at different times: at task boundaries only, it is the "
        "incremental accuracy. It does not describe the final model.",
        short="anytime accuracy",
        source=f"Caccia et al. 2022; {GUIDE}",
    ),
    Term(
        key="anytime_accuracy_all",
        name="anytime accuracy on all tasks",
        meaning="Accuracy on all tasks, future ones included, at any moment of training. From 0 to 1, higher is "
        "better.",
        computed="Mean accuracy over all tasks and all evaluations, within steps if there are any. " + OVER_RUNS,
        not_for="Do not compare it with accuracies on the tasks seen so far: early in a sequence most tasks are "
        "unknown, so its highest possible value depends on the number of tasks.",
        short="anytime accuracy (all)",
        source=GUIDE,
    ),
    Term(
        key="average_incremental_accuracy",
        name="average incremental accuracy",
        meaning="Accuracy on the tasks trained so far, averaged over steps. From 0 to 1, higher is better.",
        computed="Mean accuracy on the tasks trained so far after each step, averaged over steps; every task has the "
        "same weight. " + OVER_RUNS,
        not_for="Do not compare it with the average accuracy at the end: early steps with few tasks raise it. Papers "
        "that weight test examples equally get another number if tasks differ in size.",
        short="incremental accuracy",
        source=f"Rebuffi et al. 2017; {GUIDE}",
    ),
    Term(
        key="learning_accuracy",
        name="learning accuracy",
        meaning="How well each task is learned, before anything can be forgotten. From 0 to 1, higher is better.",
        computed="Accuracy on each task right after its own training, averaged over tasks. " + OVER_RUNS,
        not_for="Do not use it to judge the final model: what is forgotten afterwards does not count.",
        source=f"Riemer et al. 2019; {GUIDE}",
    ),
    Term(
        key="gem_loss_backward_transfer",
        name="backward transfer of losses at the last step",
        meaning="How much the loss on old tasks improved from the end of their training to the end of the sequence. "
        "Higher is better; negative is forgetting.",
        computed="Loss right after the task's own training minus loss after the last step, averaged over all tasks "
        "but the last. " + OVER_RUNS,
        not_for="Do not compare it between data sets or loss functions: it is in the unit of the loss and has no "
        "fixed range.",
        short="GEM BWT (loss)",
        source=GUIDE,
    ),
    Term(
        key="gem_performance_backward_transfer",
        name="backward transfer of performance at the last step",
        meaning="How much the performance on old tasks improved from the end of their training to the end of the "
        "sequence. Higher is better; negative is forgetting.",
        computed="Performance after the last step minus performance right after the task's own training, averaged "
        "over all tasks but the last. " + OVER_RUNS,
        not_for="Do not compare it between benchmarks: it is in the unit of the performance and has no fixed range.",
        short="GEM BWT (performance)",
        source=GUIDE,
    ),
)

LIFELONG_TERMS = (
    Term(
        key="perf_maintenance_mrlep",
        name="performance maintenance, relative to the first evaluation after training",
        meaning="Change of a task's performance while other tasks are learned. From -100 to 100, higher is better; 0 "
        "is no forgetting, negative is forgetting.",
        computed="Each later evaluation of a task minus its first evaluation after its most recent training, averaged "
        "over evaluations, then over tasks. " + SCALED,
        not_for="Do not compare it between experiments with different curves: the scale of each task is set by its "
        "own lowest and highest value.",
        short="performance maintenance (MRLEP)",
        source=LIFELONG,
    ),
    Term(
        key="perf_maintenance_mrtlp",
        name="performance maintenance, relative to the end of training",
        meaning="Change of a task's performance since the end of its training. From -100 to 100, higher is better; 0 "
        "is no forgetting, negative is forgetting.",
        computed="Each later evaluation of a task minus the mean of the last tenth of its most recent training block, "
        "averaged over evaluations, then over tasks. " + SCALED,
        not_for="Do not use it if training and evaluation are measured differently, for example with exploration: the "
        "difference then counts as forgetting.",
        short="performance maintenance (MRTLP)",
        source=LIFELONG,
    ),
    Term(
        key="forward_transfer_ratio",
        name="forward transfer as a ratio",
        meaning="How learning one task changes another that is not trained yet. From 1/101 to 101, higher is better; "
        "1 is no transfer.",
        computed="Evaluation after training another task divided by the one before it; mean of the first value of "
        "each pair of tasks. " + SCALED,
        not_for="Do not read its size without the contrast: near the lowest performance, small changes give large "
        "ratios.",
        short="forward transfer, ratio",
        source=LIFELONG,
    ),
    Term(
        key="forward_transfer_contrast",
        name="forward transfer as a contrast",
        meaning="How learning one task changes another that is not trained yet. From -1 to 1, higher is better; 0 is "
        "no transfer.",
        computed="(after - before) / (after + before) of the evaluations around training another task; mean of the "
        "first value of each pair of tasks. " + SCALED,
        not_for="Do not read it as a difference of performances: the same rise counts more from a low level than from "
        "a high one.",
        short="forward transfer, contrast",
        source=LIFELONG,
    ),
    Term(
        key="backward_transfer_ratio",
        name="backward transfer as a ratio",
        meaning="How learning one task changes another that was trained before. From 1/101 to 101, higher is better; "
        "1 is no transfer, below 1 is forgetting.",
        computed="Evaluation after training another task divided by the one before it; mean of the first value of "
        "each pair of tasks. " + SCALED,
        not_for="Do not compare it with BWT, a difference to the end of the task's training: here only consecutive "
        "evaluations are compared.",
        short="backward transfer, ratio",
        source=LIFELONG,
    ),
    Term(
        key="backward_transfer_contrast",
        name="backward transfer as a contrast",
        meaning="How learning one task changes another that was trained before. From -1 to 1, higher is better; 0 is "
        "no transfer, negative is forgetting.",
        computed="(after - before) / (after + before) of the evaluations around training another task; mean of the "
        "first value of each pair of tasks. " + SCALED,
        not_for="Do not compare it with BWT, a difference to the end of the task's training: here only consecutive "
        "evaluations are compared.",
        short="backward transfer, contrast",
        source=LIFELONG,
    ),
    Term(
        key="ste_rel_perf",
        name="performance relative to a single-task expert",
        meaning="How well a task is learned compared with a network that learns only this task. At least 0, higher is "
        "better; 1 equals the expert.",
        computed="Area under the task's training curve divided by that of the expert, over equally many experiences; "
        "mean over tasks. " + SCALED,
        not_for="Do not use it to judge forgetting: only training curves count. It depends on how well the expert was "
        "trained.",
        short="relative performance",
        source=LIFELONG,
    ),
    Term(
        key="sample_efficiency",
        name="sample efficiency",
        meaning="How high and how fast a task's training saturates compared with a single-task expert. At least 0, "
        "higher is better; 1 equals the expert.",
        computed="(saturation / expert's saturation) times (expert's experiences to saturation / own); mean over the "
        "tasks whose curves rise. " + SCALED,
        not_for="Do not use it for noisy or short curves: it rests on where the smoothed curve has its maximum.",
        source=LIFELONG,
    ),
    Term(
        key="perf_recovery",
        name="performance recovery",
        meaning="Whether a revisited task regains its earlier performance faster each time. Any number, higher is "
        "better; 0 is no change, positive is faster.",
        computed="Minus the Theil-Sen slope of the experiences needed to regain the previous final performance, over "
        "the visits to a task; mean over tasks. " + SCALED,
        not_for="Do not use it with few visits: a task needs at least three training blocks, and two recovery times "
        "make an unreliable slope.",
        short="performance recovery",
        source=LIFELONG,
    ),
    Term(
        key="avg_train_perf",
        name="mean performance in training",
        meaning="Performance during training, averaged over a task's training blocks. From 1 to 101, higher is better.",
        computed="Mean of each training block, averaged over the blocks of a task, then over tasks. " + SCALED,
        not_for="Do not compare it between experiments: 1 and 101 are the lowest and highest performance of this run "
        "and its experts.",
        source=LIFELONG,
    ),
    Term(
        key="avg_eval_perf",
        name="mean performance in evaluations",
        meaning="Performance in evaluations, averaged over the whole run. From 1 to 101, higher is better.",
        computed="Mean of each evaluation, averaged over the evaluations of a task, then over tasks. " + SCALED,
        not_for="Do not read it as final performance: evaluations before a task was trained count too.",
        source=LIFELONG,
    ),
)
TERMS = (*VARIANTS, *LIFELONG_TERMS)
