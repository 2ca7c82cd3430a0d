"""How a model is served: layouts, engines, workloads, and the rules that make them legal."""
