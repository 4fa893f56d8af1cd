"""The page and the tables. They compute nothing."""

from perdure.report.page import write_page

__all__ = ["write_page"]
