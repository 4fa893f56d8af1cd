"""The tables of the SHAPC paper."""
