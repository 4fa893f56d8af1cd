"""Names of PyTorch operations, without the trailing underscore, grouped by their effect on attributions."""

# fmt: off
# Operations that only move values.
ROUTING = frozenset({
    "_pin_memory", "_reshape_alias", "_to_copy", "_unsafe_view", "alias", "as_strided", "cat", "channel_shuffle",
    "chunk", "clone", "constant_pad_nd", "contiguous", "copy", "detach", "diagonal", "expand", "flip", "gather",
    "index", "index_select", "lift_fresh", "movedim", "narrow", "native_channel_shuffle", "permute",
    "pixel_shuffle", "reflection_pad1d", "reflection_pad2d", "repeat", "replication_pad1d", "replication_pad2d",
    "reshape", "roll", "select", "slice", "split", "split_with_sizes", "squeeze", "stack", "t", "transpose",
    "unbind", "unfold", "unsafe_split", "unsqueeze", "view", "view_as",
})
# Linear if only one operand depends on the input.
PRODUCTS = frozenset({
    "_addmm_activation", "_convolution", "_mkldnn_linear_pointwise", "addbmm", "addcdiv", "addcmul", "addmm",
    "baddbmm", "bmm", "convolution", "cudnn_convolution", "div", "dot", "linear", "matmul", "mkl_linear",
    "mkldnn_convolution", "mkldnn_linear", "mm", "mul", "mv",
})
# Sums weighted by parameters. The rest of PRODUCTS scales single values.
WEIGHTED = PRODUCTS - {"addcdiv", "addcmul", "div", "mul"}
SUMS = frozenset({"add", "rsub", "sub"})
# Always linear.
LINEAR = frozenset({
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_batch_norm_no_update", "_batch_norm_with_update",
    "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "cudnn_batch_norm", "cumsum",
    "index_add", "mean", "mkldnn_adaptive_avg_pool2d", "native_batch_norm", "neg", "sum", "upsample_bilinear2d",
    "upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d",
})
# Nonlinear operations whose output is their gradient times their input.
POSITIVELY_HOMOGENEOUS = frozenset({
    "adaptive_max_pool2d", "adaptive_max_pool3d", "max_pool1d", "max_pool1d_with_indices", "max_pool2d",
    "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "mkldnn_max_pool2d", "mkldnn_max_pool3d", "relu",
})
# Operations that read or write a table at given indices.
LOOKUPS = frozenset({
    "_embedding_bag", "_embedding_bag_forward_only", "embedding", "gather", "index", "index_select", "scatter", "scatter_",
    "take",
})
# Operations that draw random numbers.
RANDOM = frozenset({
    "bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial", "native_dropout",
    "normal", "normal_", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random_",
    "randperm", "rrelu_with_noise", "uniform_",
})
# Activations and the operations from which they can be composed. Guided backprop has a rule only for ReLU.
ELEMENTWISE = frozenset({
    "_prelu_kernel", "celu", "clamp", "clamp_max", "clamp_min", "elu", "ge", "gelu", "gt", "hardsigmoid",
    "hardswish", "hardtanh", "le", "leaky_relu", "log_sigmoid_forward", "lt", "maximum", "minimum", "mish", "prelu",
    "relu", "relu6", "selu", "sigmoid", "silu", "softplus", "tanh", "threshold", "where",
})
