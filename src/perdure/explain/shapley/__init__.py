"""Shapley values: games, players and estimators."""
