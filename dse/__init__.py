"""Design-space exploration for LLM serving: declare a space in YAML, prune it, simulate it, find the front."""
