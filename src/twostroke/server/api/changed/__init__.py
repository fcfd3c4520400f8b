"""What is left out of a request, or changed in it, so that it can be answered; each change has a note."""
