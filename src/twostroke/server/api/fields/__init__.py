"""Fields that requests of several APIs share: reads each from a body, with its rules and its defaults."""
