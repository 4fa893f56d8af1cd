"""Does the learner still decide for the same reasons? SHAPC over the checkpoints of a run."""
