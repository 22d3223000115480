"""Runs and studies: their folders, tables and figures."""
