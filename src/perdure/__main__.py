"""Lets ``python -m perdure`` do what ``perdure`` does."""

from perdure.cli import main

main()
