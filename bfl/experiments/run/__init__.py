"""Runs by their configuration: start, resume, training and evaluation.

Importing this package does not import TensorFlow; ``evaluator`` does.
"""
