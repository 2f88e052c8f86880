"""The releases that the README promises and that tests run on by default."""

DEFAULT_RELEASES = ("0.4.0", "0.5.0", "0.6.0", "0.12.3", "0.16.1", "0.19.2")
