"""Throughput of a deployment under load in microseconds a point, and the batch cap it advises.

Decode attention reads the whole KV of its batch at a constant arithmetic intensity, so HBM
bandwidth saturates and throughput plateaus long before compute is used up (SLIM, arXiv:2607.29575).
The model keeps that KV scan explicit and sits between the walls (a bound) and the simulator (every
step).
"""
