"""Statistics of metrics: confidence intervals, the bootstrap, multiple tests and correlation."""
