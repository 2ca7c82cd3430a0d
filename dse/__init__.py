"""Design-space exploration for LLM serving: declare, prune, simulate, report the front."""
