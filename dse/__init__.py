"""Design-space exploration for LLM serving: declare a space, prune it, simulate it, read the front."""
