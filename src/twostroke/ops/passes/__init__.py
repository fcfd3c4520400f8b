"""The passes that know ops by name: each makes a program from a program."""
