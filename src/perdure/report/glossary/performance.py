"""Entries on accuracy, forgetting, transfer, cost and the score."""

from perdure.report.glossary.terms import OVER_RUNS, Term

CRITERIA_PAPER = "Díaz-Rodríguez et al. 2018"
GUIDE = "docs/metrics.md"
STABILITY_GAP = "De Lange et al. 2023"

TERMS = (
    Term(
        key="accuracy",
        name="accuracy",
        meaning="Share of the test examples that are classified correctly. From 0 to 1, higher is better.",
        computed="Number of correctly classified test examples divided by their number, over all tasks, one task or "
        "one class. The interval of a single model is exact (Clopper and Pearson) and covers the choice of test "
        "examples.",
        not_for="Do not compare it between test sets with different classes: chance level and difficulty differ. With "
        "unequal classes, a high value can hide a class that is never recognized.",
        source="docs/check.md",
    ),
    Term(
        key="accuracy_matrix",
        name="accuracy matrix",
        meaning="Accuracy on each task (column) after each step (row), from 0 to 1. A column that falls from its own "
        "step on shows forgetting.",
        computed="Share of correctly classified test examples of the task, averaged over runs. Empty cells were not "
        "measured.",
        not_for="Do not read empty cells as 0. Do not judge small differences between cells: the matrix shows means "
        "without intervals.",
        source=GUIDE,
    ),
    Term(
        key="average_accuracy",
        name="average accuracy",
        meaning="Share of test examples that the learner classifies correctly after the last step, averaged over all "
        "trained tasks. From 0 to 1, higher is better.",
        computed="Mean of the accuracies on all trained tasks after the last step; every task has the same weight. "
        + OVER_RUNS,
        not_for="Do not compare it between benchmarks, scenarios or numbers of tasks: chance level and difficulty "
        "differ. It does not show whether old tasks were forgotten or new ones not learned.",
        source=f"Cai et al.; {GUIDE}",
    ),
    Term(
        key="average_accuracy_by_step",
        name="average accuracy after each step",
        meaning="Share of test examples that the learner classifies correctly after a step, averaged over the tasks "
        "trained so far. From 0 to 1, higher is better; the last step gives the average accuracy of the tables.",
        computed="Mean of the accuracies on the tasks trained by then; every task has the same weight. " + OVER_RUNS,
        not_for="Do not compare early steps with late ones: they are averages over fewer tasks. A falling line is no "
        "proof of forgetting, because new tasks can be harder.",
        source=GUIDE,
    ),
    Term(
        key="forgetting_by_step",
        name="forgetting after each step",
        meaning="How far the accuracy on old tasks lies below its best earlier value after a step. From -1 to 1, lower "
        "is better; the last step gives the forgetting of the tables.",
        computed="For each task trained before this step: highest accuracy after any earlier step minus accuracy after "
        "this step; mean over these tasks. " + OVER_RUNS,
        not_for="Do not read the first step as no forgetting: there is no old task yet. Do not use it without the "
        "accuracy: a task that was never learned cannot be forgotten.",
        source=GUIDE,
    ),
    Term(
        key="forgetting",
        name="average forgetting",
        meaning="How far the final accuracy on old tasks lies below its best earlier value. From -1 to 1, lower is "
        "better; negative means that old tasks improved.",
        computed="For each task except the one trained last: highest accuracy after any earlier step minus accuracy "
        "after the last step; mean over these tasks. " + OVER_RUNS,
        not_for="Do not use it without the average accuracy: a task that was never learned cannot be forgotten. Do "
        "not compare it with the forgetting of other frameworks: their formulas differ (see the variants).",
        short="forgetting",
        source=f"Cai et al.; {GUIDE}",
    ),
    Term(
        key="min_accuracy",
        name="average minimum accuracy",
        meaning="How low the accuracy on an old task falls in the worst moment after its training. From 0 to 1, "
        "higher is better.",
        computed="Lowest accuracy on each old task at any evaluation after its own training, averaged over old tasks; "
        "evaluations within steps are used if there are any. " + OVER_RUNS,
        not_for="Do not take it as the true minimum if accuracies were evaluated at task boundaries only: it is then "
        "an upper bound. Do not compare runs that were evaluated at different times.",
        short="min-ACC",
        source=f"{STABILITY_GAP}, Eq. 2; {GUIDE}",
    ),
    Term(
        key="worst_case_accuracy",
        name="worst-case accuracy",
        meaning="Accuracy that can be relied on at any time: the final accuracy on the newest task combined with the "
        "worst moments of the old ones. From 0 to 1, higher is better.",
        computed="With K trained tasks: final accuracy on the task trained last / K + (1 - 1 / K) * min-ACC. "
        + OVER_RUNS,
        not_for="Do not take it as a guarantee if accuracies were evaluated at task boundaries only: it is then an "
        "upper bound. It is an average over tasks, so a single task can be lower.",
        short="WC-ACC",
        source=f"{STABILITY_GAP}, Eq. 3; {GUIDE}",
    ),
    Term(
        key="windowed_forgetting",
        name="windowed forgetting",
        meaning="Largest sudden drop of a task's accuracy during training, averaged over tasks. From 0 to 1, lower is "
        "better.",
        computed="For each task the largest drop within 10 consecutive evaluations, 0 if it never drops; mean over "
        "tasks. Needs evaluations within steps. " + OVER_RUNS,
        not_for="Do not compare runs that were evaluated at different intervals: the window counts evaluations, not "
        "training time. It does not say whether the accuracy recovered.",
        short="WF10",
        source=f"{STABILITY_GAP}; {GUIDE}",
    ),
    Term(
        key="windowed_plasticity",
        name="windowed plasticity",
        meaning="Largest sudden rise of a task's accuracy during training, averaged over tasks. From 0 to 1, higher "
        "is better.",
        computed="For each task the largest rise within 10 consecutive evaluations, 0 if it never rises; mean over "
        "tasks. Needs evaluations within steps. " + OVER_RUNS,
        not_for="Do not read it as final performance: a learner that drops and recovers also rises. Do not compare "
        "runs that were evaluated at different intervals.",
        short="WP10",
        source=f"{STABILITY_GAP}; {GUIDE}",
    ),
    Term(
        key="backward_transfer",
        name="backward transfer",
        meaning="How much later training changed the accuracy on tasks that were already learned. From -1 to 1, "
        "higher is better; negative is forgetting.",
        computed="Accuracy on a task after a later step minus accuracy right after its own training, averaged over "
        "all pairs of a task and a later step. " + OVER_RUNS,
        not_for="Do not compare it with the backward transfer of GEM, avalanche or mammoth, which use the last step "
        "only. 0 can mean that gains and losses cancel.",
        short="BWT",
        source=f"{CRITERIA_PAPER}, Eq. 3; {GUIDE}",
    ),
    Term(
        key="A",
        name="accuracy over time",
        meaning="Accuracy on the tasks seen so far, averaged over the whole sequence instead of its end only. From 0 "
        "to 1, higher is better.",
        computed="Mean of the accuracies over all pairs of a step and a task trained at or before that step, so late "
        "steps weigh more. " + OVER_RUNS,
        not_for="Do not compare it with the average accuracy or with papers that call the final accuracy A. It does "
        "not describe the model at the end of training.",
        short="A",
        source=f"{CRITERIA_PAPER}, Eq. 2; {GUIDE}",
    ),
    Term(
        key="REM",
        name="remembering",
        meaning="How well old tasks are kept: 1 means that later training did not lower their accuracy on average. "
        "From 0 to 1, higher is better.",
        computed="1 minus the magnitude of backward transfer if it is negative, otherwise 1; clipped after averaging "
        "over tasks and steps. " + OVER_RUNS,
        not_for="Do not read 1 as no forgetting on any task: gains on one task offset losses on another. A learner "
        "that learns nothing also has 1.",
        short="REM",
        source=f"{CRITERIA_PAPER}, Eq. 4; {GUIDE}",
    ),
    Term(
        key="BWT+",
        name="positive backward transfer",
        meaning="How much later training improved old tasks. From 0 to 1, higher is better; 0 means no improvement on "
        "average.",
        computed="Backward transfer if it is positive, otherwise 0; clipped after averaging over tasks and steps. "
        + OVER_RUNS,
        not_for="Do not read 0 as no change: it also stands for any amount of forgetting. Use backward transfer or "
        "remembering for that.",
        short="BWT+",
        source=f"{CRITERIA_PAPER}, Eq. 5; {GUIDE}",
    ),
    Term(
        key="FWT",
        name="forward transfer",
        meaning="Accuracy on tasks before they are trained. From 0 to 1, higher is better; a network that guesses "
        "scores chance level, not 0.",
        computed="Mean of the accuracies over all pairs of a step and a task that is trained later, without "
        "subtracting a baseline. " + OVER_RUNS,
        not_for="Do not read a positive value as transfer before comparing it with chance level. The forward transfer "
        "of GEM, avalanche and mammoth subtracts a baseline and is another number.",
        short="FWT",
        source=f"{CRITERIA_PAPER}, Eq. 6; {GUIDE}",
    ),
    Term(
        key="MS",
        name="model size efficiency",
        meaning="Whether the model grows with the number of tasks. From 0 to 1, higher is better; 1 means that it "
        "does not grow.",
        computed="Size at the first step divided by size at each step, averaged over steps, at most 1; size counts "
        "parameters and numbers stored per parameter. " + OVER_RUNS,
        not_for="Do not use it to compare the sizes of two models: a large model that does not grow has 1. Stored "
        "examples, and by default frozen old networks, are not counted.",
        short="MS",
        source=f"{CRITERIA_PAPER}, Eq. 7; {GUIDE}",
    ),
    Term(
        key="SSS",
        name="samples storage size efficiency",
        meaning="How few training examples are stored for later tasks. From 0 to 1, higher is better; 1 means that "
        "none is stored.",
        computed="1 minus the bits of stored examples while each task is learned divided by the bits of the training "
        "data of all tasks, averaged over steps, at least 0. " + OVER_RUNS,
        not_for="Do not use it as evidence of privacy: 1 says that no examples are stored, not that the network "
        "cannot reveal them. It is relative to the size of the data, so buffers of equal size differ between "
        "benchmarks.",
        short="SSS",
        source=f"{CRITERIA_PAPER}, Eq. 8; {GUIDE}",
    ),
    Term(
        key="CE",
        name="computational efficiency",
        meaning="How little computation training needs. From 0 to 1, higher is better; 1 means at most about epsilon "
        "(by default ten) passes over the data of each task.",
        computed="Operations of one forward and backward pass over a task's data times epsilon, divided by 1 plus all "
        "operations spent on the task; mean over steps, at most 1. " + OVER_RUNS,
        not_for="Do not compare values with different epsilon. Do not read it as time or energy: it counts "
        "multiply-adds, and everything below epsilon passes scores 1.",
        short="CE",
        source=f"{CRITERIA_PAPER}, Eq. 9; {GUIDE}",
    ),
    Term(
        key="average_loss",
        name="average loss",
        meaning="Loss after the last step, averaged over all trained tasks, in the unit of the loss. Lower is better; "
        "there is no fixed range.",
        computed="Mean of the losses on all trained tasks after the last step. " + OVER_RUNS,
        not_for="Do not compare it between data sets, vocabularies or loss functions. One task with large losses can "
        "dominate the mean.",
        source=GUIDE,
    ),
    Term(
        key="loss_forgetting",
        name="forgetting of losses",
        meaning="How far the final loss on old tasks lies above its lowest earlier value. Lower is better; positive "
        "is forgetting.",
        computed="For each task except the one trained last: loss after the last step minus lowest loss after any "
        "earlier step; mean over these tasks. " + OVER_RUNS,
        not_for="Do not compare it with the forgetting of accuracies: it is in the unit of the loss and has no upper "
        "limit.",
        short="forgetting (loss)",
        source=GUIDE,
    ),
    Term(
        key="loss_backward_transfer",
        name="backward transfer of losses",
        meaning="How much later training improved the loss on old tasks. Higher is better; negative is forgetting.",
        computed="Loss right after a task's own training minus its loss after a later step, averaged over all pairs "
        "of a task and a later step. " + OVER_RUNS,
        not_for="Do not compare it with the backward transfer of accuracies: it is in the unit of the loss and has no "
        "fixed range.",
        short="BWT (loss)",
        source=GUIDE,
    ),
    Term(
        key="average_performance",
        name="average performance",
        meaning="Performance, such as reward, after the last step, averaged over all trained tasks, in its own unit. "
        "Higher is better; there is no fixed range.",
        computed="Mean of the performances on all trained tasks after the last step. " + OVER_RUNS,
        not_for="Do not compare it between benchmarks. If tasks have different scales, the one with the largest "
        "dominates the mean.",
        source=GUIDE,
    ),
    Term(
        key="performance_forgetting",
        name="forgetting of performance",
        meaning="How far the final performance on old tasks lies below its best earlier value. Lower is better; "
        "positive is forgetting.",
        computed="For each task except the one trained last: best performance after any earlier step minus "
        "performance after the last step; mean over these tasks. " + OVER_RUNS,
        not_for="Do not compare it with the forgetting of accuracies: it is in the unit of the performance and has no "
        "fixed range.",
        short="forgetting (performance)",
        source=GUIDE,
    ),
    Term(
        key="performance_backward_transfer",
        name="backward transfer of performance",
        meaning="How much later training improved the performance on old tasks. Higher is better; negative is "
        "forgetting.",
        computed="Performance on a task after a later step minus performance right after its own training, averaged "
        "over all pairs of a task and a later step. " + OVER_RUNS,
        not_for="Do not compare it with the backward transfer of accuracies: it is in the unit of the performance and "
        "has no fixed range.",
        short="BWT (performance)",
        source=GUIDE,
    ),
    Term(
        key="cl_score",
        name="continual learning score",
        meaning="One number for accuracy, memory, transfer and cost together, weighted by importance. From 0 to 1, "
        "higher is better.",
        computed="Weighted sum of the seven criteria A, MS, SSS, CE, BWT+, REM and FWT; the weights sum to 1. It is "
        "computed for each run, with an interval over runs.",
        not_for="Do not compare scores with different weights or with missing criteria. The weights decide the "
        "ranking: read the share of weightings ranked first with it.",
        short="CL_score",
        source=f"{CRITERIA_PAPER}, Eq. 10; {GUIDE}",
    ),
    Term(
        key="cl_stability",
        name="continual learning stability",
        meaning="How little the criteria vary between runs of the same learner. From 0 to 1, higher is better; 1 "
        "means that all runs agree.",
        computed="1 minus the weighted sum of the criteria's population standard deviations over runs. It is one "
        "number for at least two runs and has no interval.",
        not_for="Do not read it as stability over tasks or of reasons: it is variation between seeds. With two or "
        "three runs the standard deviations are unreliable.",
        short="CL_stability",
        source=f"{CRITERIA_PAPER}, Eq. 11; {GUIDE}",
    ),
    Term(
        key="first_places",
        name="share of weightings ranked first",
        meaning="Share of all possible weightings of the criteria under which the learner has the highest score. From "
        "0 to 1; the shares of all learners sum to 1.",
        computed="100,000 weightings drawn uniformly from all that sum to 1, applied to the means of the criteria "
        "that are known for every learner; ties are shared.",
        not_for="Do not read it as the probability that a learner is best: it ignores the variation between runs and "
        "gives every weighting the same weight. It changes when a learner is added.",
        short="ranked first",
        source="docs/report.md",
    ),
    Term(
        key="criteria_correlation",
        name="rank correlation of the criteria",
        meaning="Whether two criteria rank the learners in the same order. From -1 (opposite order) to 1 (same "
        "order); neither is better.",
        computed="Spearman correlation of the criteria's means over the learners of this audit, at least three; "
        "missing for a criterion that is the same for all.",
        not_for="Do not generalize it to other learners or benchmarks: with few learners, high correlations arise by "
        "chance. It has no interval.",
        short="correlation",
        source="docs/report.md",
    ),
)
