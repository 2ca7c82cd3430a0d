"""How much a step computes, moves and sends, what fits, and how long it takes."""
