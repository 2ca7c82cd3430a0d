"""Measurements: readers, calibration, validation and triage."""
