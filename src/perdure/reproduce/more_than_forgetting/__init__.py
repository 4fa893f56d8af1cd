"""The experiment of more-than-forgetting: five strategies and seven criteria."""
