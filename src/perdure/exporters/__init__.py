"""Exporters: the results of an audit in other tools' formats. Each format is one file in ``formats``."""

from perdure.exporters.exporter import EXPORTERS, Exporter, export, exporter, optional_package

__all__ = ["EXPORTERS", "Exporter", "export", "exporter", "optional_package"]
