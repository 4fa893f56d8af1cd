"""The built-in benchmarks, one file per data set."""
