"""The change-detection benchmark: harmless and planted changes of a model, our test and four alternatives."""
