"""Building blocks that several learners share."""
