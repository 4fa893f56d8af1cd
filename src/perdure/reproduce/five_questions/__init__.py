"""One study across the five papers: do accuracy, reasons, retention, cost and trust in explanations agree?"""
