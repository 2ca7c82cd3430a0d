"""The charts, the one home of Altair: named datasets in, Vega-Lite out, pixels never."""
