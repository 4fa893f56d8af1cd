"""Entries on attribution bias, and on explanations under retraining (MeGe and ReCo)."""

from perdure.report.glossary.terms import Term

BIAS_SOURCE = "attribution-bias paper; docs/trust.md"
RETRAINING_SOURCE = "Fel et al. 2022; docs/retraining.md"
OVER_EXAMPLES = "The interval is a bootstrap over examples."

BIAS_TERMS = (
    Term(
        key="bias",
        name="attribution bias",
        meaning="How far an explainer's weights for the inputs that it ranks highest or lowest differ from their "
        "Shapley values. From 0 to 2, lower is better; 0 is unbiased.",
        computed="Map and Shapley values are scaled to length 1; magnitude of the difference of their means over the "
        "selected inputs, averaged over five shares, both sides and examples. Interval over examples.",
        not_for="Do not compare it between networks or numbers of inputs: its size depends on both. It measures "
        "agreement with Shapley values, not with what a person would call the reason.",
        source=BIAS_SOURCE,
    ),
    Term(
        key="bias_relative",
        name="attribution bias relative to a random map",
        meaning="Attribution bias on a scale on which 1 is unbiased and 0 is as biased as a random map; negative is "
        "more biased. Higher is better.",
        computed="1 - bias of the explainer / bias of the random control map, both on the same network, examples and "
        "Shapley values.",
        not_for="Do not read it as a percentage of correct attributions, and do not compare explainers by it without "
        "the p-values: small differences can be noise of the reference.",
        short="relative to random",
        source=BIAS_SOURCE,
    ),
    Term(
        key="bias_corrected",
        name="attribution bias corrected for sampling noise",
        meaning="Attribution bias without the effect of noise on the size of the sampled Shapley values. From 0, "
        "lower is better; 0 is unbiased.",
        computed="As attribution bias, with the sum of squared standard errors subtracted from the squared length of "
        "the Shapley values, which keeps at least a tenth. It has no interval.",
        not_for="Do not use it to remove all noise: only the length is corrected. The noise floor remains.",
        short="corrected",
        source=BIAS_SOURCE,
    ),
    Term(
        key="bias_floor",
        name="noise floor of attribution bias",
        meaning="Attribution bias that an unbiased map would have because the Shapley values are sampled. A bias near "
        "the floor cannot be distinguished from none.",
        computed="Standard error of the mean Shapley value of the selected inputs, relative to the length of the "
        "Shapley values, times the square root of 2 / pi; averaged over examples.",
        not_for="Do not subtract it from the bias: noise and bias do not add up. More permutations lower it.",
        short="noise floor",
        source=BIAS_SOURCE,
    ),
    Term(
        key="bias_share",
        name="share of selected inputs",
        meaning="Part of the inputs that the bias is computed on: the 10, 30, 50, 70 or 90 % that the explainer ranks "
        "highest or lowest.",
        computed="The share times the number of inputs, rounded down, at least one input; ties are broken by position.",
        not_for="Do not count shares as independent evidence: larger sets contain the smaller ones. With few inputs "
        "several shares select the same set.",
        short="share",
        source=BIAS_SOURCE,
    ),
    Term(
        key="bias_side",
        name="side of the selected inputs",
        meaning="Which inputs the bias is computed on: top, those with the highest attributions, or bottom, those "
        "with the lowest.",
        computed="Inputs are sorted by their signed attribution; bottom therefore holds the most negative ones, or "
        "the least important ones of a map without negative values.",
        not_for="Do not read bottom as unimportant: for maps with a sign, it holds the strongest evidence against the "
        "class.",
        short="side",
        source=BIAS_SOURCE,
    ),
    Term(
        key="bias_sampling_error",
        name="sampling standard error of attribution bias",
        meaning="Uncertainty of the bias that comes from sampling the Shapley values. More permutations remove it; "
        "more examples also reduce it.",
        computed="From the spread of the Shapley values over independent groups of permutations, combined over "
        "examples.",
        not_for="Do not use it as the uncertainty of the bias: the choice of examples adds to it, and the interval "
        "covers that.",
        short="sampling standard error",
        source=BIAS_SOURCE,
    ),
    Term(
        key="bias_difference",
        name="bias above the least biased explainer",
        meaning="How much more biased an explainer is than the one with the lowest bias. Lower is better; 0 is "
        "equally biased.",
        computed="Mean of the paired differences on the same examples with an uncorrected interval over examples. The "
        "p-value is from Student's paired t-test, Holm-corrected over all explainers and controls.",
        not_for="Do not call the least biased explainer best if a p-value is 0.05 or more: the lead can be chance. "
        "The verdict holds for this network and this value of masked inputs only.",
        short="above the least biased",
        source=BIAS_SOURCE,
    ),
    Term(
        key="controls",
        name="control maps",
        meaning="Two maps without information about the network: ones everywhere (constant) and Gaussian noise "
        "(random). An explainer must differ from them to be informative.",
        computed="They are scored exactly like explainers, on the same examples.",
        not_for="Do not rank explainers without them: a constant map has the best possible MeGe. Do not treat them as "
        "explainers.",
        source="docs/trust.md; docs/retraining.md",
    ),
    Term(
        key="bias_degenerate",
        name="examples without a bias",
        meaning="Number of examples that are left out because the map or the Shapley values are zero everywhere. 0 is "
        "best.",
        computed="Count over the examined examples; they do not enter any mean.",
        not_for="Do not compare explainers with very different counts: their means are over different examples.",
        short="degenerate",
        source=BIAS_SOURCE,
    ),
)

RETRAINING_TERMS = (
    Term(
        key="mege_relative",
        name="similarity of explanations after retraining",
        meaning="How similar the explanations of networks trained on different parts of the data are, from 0, as different "
        "as random maps, to 1, identical maps. Higher is better.",
        computed="(m - r) / (1 - r), with m the mean generalizability (MeGe) of the explainer and r that of random maps. The "
        "interval uses the least favorable ends of both 95 % intervals, so it is longer than a 95 % interval has to be.",
        not_for="Do not read high values as correct explanations: a constant map scores 1. Look at the relative consistency "
        "(ReCo), too, which a constant map does not pass.",
        source=RETRAINING_SOURCE,
    ),
    Term(
        key="mege",
        name="mean generalizability",
        meaning="How similar the explanations of two networks are that were trained on almost the same data and are "
        "both right. From 0 to 1, higher is better; 1 is identical.",
        computed="1 / (1 + mean distance) over all examples and pairs of networks that both classify the example "
        "correctly. " + OVER_EXAMPLES,
        not_for="Do not use it alone to choose an explainer: a constant map without information has 1. Do not compare "
        "it between distances.",
        short="MeGe",
        source="Fel et al. 2022, Eq. 3; docs/retraining.md",
    ),
    Term(
        key="mege_distance",
        name="mean distance of explanations",
        meaning="Mean distance between the explanations of two networks that are both right. At least 0, lower is "
        "better; 0 is identical.",
        computed="Mean over all examples and pairs of networks that both classify the example correctly. "
        + OVER_EXAMPLES,
        not_for="Do not compare explainers by a distance that depends on the scale of the maps (l2, ssim): their "
        "scales differ.",
        short="mean distance",
        source="MeGe-ReCo report; docs/retraining.md",
    ),
    Term(
        key="reco_rate",
        name="relative consistency of rates",
        meaning="Whether explanations differ more when only one of two networks is right than when both are. From 0 "
        "to 1, higher is better; without any separation it is 0.",
        computed="Largest difference, over all thresholds, between the shares of S= and of S≠ with a distance up to "
        "the threshold. " + OVER_EXAMPLES,
        not_for="Do not read a small positive value as better than chance: it is a maximum and rarely exactly 0. Use "
        "the p-value.",
        short="ReCo, rates",
        source=RETRAINING_SOURCE,
    ),
    Term(
        key="reco_precision",
        name="relative consistency of precisions",
        meaning="The form of relative consistency that the papers print. From -1 to 1, higher is better; chance is "
        "not 0 and depends on the counts of pairs.",
        computed="Largest value, over all thresholds, of the share of S= among the distances up to it plus the share "
        "of S≠ among those above, minus 1. The interval, a bootstrap over examples, is a rough guide.",
        not_for="Do not use it to judge an explainer: a single extreme distance can determine it, and random maps "
        "score about 0.5 with equal counts. Use ReCo of rates with its p-value.",
        short="ReCo, precisions",
        source=RETRAINING_SOURCE,
    ),
    Term(
        key="reco_p",
        name="p-value of relative consistency",
        meaning="How often ReCo of rates would be at least as large if explanations did not depend on who is right. "
        "From 0 to 1; small values speak against chance.",
        computed="Permutation test: the labels of whole examples are exchanged, by default 999 times. The column p "
        "(Holm) is corrected over the explainers.",
        not_for="Do not use uncorrected values to pick the explainers that work: with many explainers, distances and "
        "noise levels some are small by chance.",
        short="p",
        source=RETRAINING_SOURCE,
    ),
    Term(
        key="pairs_same",
        name="pairs of networks that are both right",
        meaning="Number of distances between explanations of an example that both networks of a pair classify "
        "correctly.",
        computed="Count over examples and pairs of networks.",
        not_for="Do not read it as a number of independent observations: one example has a distance for each pair of "
        "networks.",
        short="S=",
        source=RETRAINING_SOURCE,
    ),
    Term(
        key="pairs_different",
        name="pairs of networks of which one is right",
        meaning="Number of distances between explanations of an example that exactly one network of a pair classifies "
        "correctly.",
        computed="Count over examples and pairs of networks.",
        not_for="Do not trust ReCo if this count is small: few errors decide it.",
        short="S≠",
        source=RETRAINING_SOURCE,
    ),
    Term(
        key="trend",
        name="trend with noise on the weights",
        meaning="Whether a score falls (the mean distance: rises) as noise is added to the weights. From -1 (falls at "
        "every level) to 1 (rises at every level).",
        computed="Spearman correlation of noise level and score within each fold, averaged over folds; the one-sided "
        "p-value is from Page's trend test over folds.",
        not_for="Do not treat the p-value as exact: the folds share networks. A trend does not say how large the "
        "change is.",
        short="rank correlation",
        source=RETRAINING_SOURCE,
    ),
    Term(
        key="weight_noise",
        name="noise on the weights",
        meaning="How strongly the networks were disturbed before they were explained; 0 % is the network as trained.",
        computed="Gaussian noise is added to each tensor of parameters; its standard deviation is this percentage of "
        "the tensor's own.",
        not_for="Do not read it as a loss of accuracy: the accuracy at each level is shown next to it.",
        short="noise",
        source=RETRAINING_SOURCE,
    ),
    Term(
        key="explanation_distance",
        name="distance between explanations",
        meaning="How the difference of two maps is measured; 0 is identical. The page shows l2-unit, which ignores "
        "the scale of the maps.",
        computed="l2-unit: Euclidean distance of the maps scaled to length 1. Others: l2, cosine, spearman, ssim, "
        "ssim-unit.",
        not_for="Do not compare scores under different distances. None of them says whether a map highlights the "
        "right object.",
        short="distance",
        source=RETRAINING_SOURCE,
    ),
    Term(
        key="checkpoint_pairs",
        name="scores between checkpoints",
        meaning="MeGe and ReCo between the checkpoints of one run. The difference to retrained networks is the effect "
        "of the sequence of tasks beyond retraining.",
        computed="As for retrained networks, over all pairs of checkpoints that have learned an example's task.",
        not_for="Do not read them without the scores of retrained networks: explanations also change when nothing but "
        "the seed changes.",
        source=RETRAINING_SOURCE,
    ),
)
TERMS = (*BIAS_TERMS, *RETRAINING_TERMS)
