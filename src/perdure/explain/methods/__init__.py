"""The explainers, one file each."""
