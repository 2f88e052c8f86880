"""The releases this package is verified on, and each of them as an overlay on one environment."""
