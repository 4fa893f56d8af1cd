"""The built-in benchmarks, one file per data set; each file registers itself."""
