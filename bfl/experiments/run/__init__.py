"""Runs by their configuration; TensorFlow is imported by ``evaluator`` alone."""
