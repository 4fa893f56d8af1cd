"""One file for each format."""
