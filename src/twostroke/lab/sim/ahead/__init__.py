"""Does many steps at once in which each stream gets one more token and nothing else can happen."""
