"""What knows nothing of LLM serving: units, YAML, families, frames, digests and errors."""
