"""Conversions between tensordicts and other forms of the same data."""
