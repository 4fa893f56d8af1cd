"""Shared by all packages: errors, registries, file reading and writing, locks, and serialization."""
