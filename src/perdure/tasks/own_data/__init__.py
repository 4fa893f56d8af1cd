"""A user's own arrays, image folders and tables."""
