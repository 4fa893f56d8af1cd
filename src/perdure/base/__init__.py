"""What every package may use: errors, the registry, file reading and locks."""
