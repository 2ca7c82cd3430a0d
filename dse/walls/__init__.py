"""Walls: what can be ruled out by arithmetic, soundly, before anything is simulated.

`facts` turns deployments into columns, `floors` are formulas over columns, `kinds` the family of
walls, `judge` applies them to frames and `block` to whole products of axes; `describe` explains one
deployment.
"""
