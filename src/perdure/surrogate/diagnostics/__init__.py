"""What the data can determine: intervals, profiles, held-out error and identifiability."""
