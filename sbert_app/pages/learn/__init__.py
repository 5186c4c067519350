"""Twelve lessons."""
