"""What readers get of a request: its text piece by piece, the best of several answers, a mailbox for one caller."""
