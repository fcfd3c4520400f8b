"""The loop: core and executor are pure; the shells around them add text, threads and event loops."""
