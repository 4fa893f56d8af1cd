"""The learners, one file for each method."""
