"""What is made or imported when it is first used."""
